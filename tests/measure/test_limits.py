from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from trainlab.machine.environment import tf32_modes
from trainlab.measure import limits
from trainlab.measure.limits import cache_key, fp32_products_as, measured_limits
from trainlab.record.files import read_json

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own."""
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "limits"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices and buffers, for tests of everything but the numbers."""
    monkeypatch.setattr(limits, "CPU_SIZES", (32, 64))
    monkeypatch.setattr(limits, "CPU_COPY_BYTES", 2**20)
    monkeypatch.setattr(limits, "BUDGET_S", 0.05)
    monkeypatch.setattr(limits, "BUSY_CORES", 1e9)  # whatever else runs beside the tests


def test_the_limits_of_the_cpu_are_measured() -> None:
    record = measured_limits(CPU)
    assert set(record.flops_per_s) == {"fp32", "bf16"}
    assert record.flops_per_s["fp32"] > 1e9
    assert record.flops_per_s["bf16"] > 1e7
    assert 1e8 < record.bytes_per_s < 1e13
    assert (record.threads, record.torch) == (1, torch.__version__)
    assert record.device_name


def test_the_cache_key_differs_wherever_the_limits_may(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [cache_key(CPU)]
    for owner, name, value in (
        (limits, "cpu_model", lambda: "another"),
        (limits, "usable_vcpus", lambda: 1000),
        (torch, "__version__", "9.9"),
    ):
        monkeypatch.setattr(owner, name, value)
        keys.append(cache_key(CPU))
    assert len(set(keys)) == 4


@pytest.mark.usefixtures("quick")
def test_limits_are_kept_and_measured_again_where_those_cannot_be_read(cache: Path) -> None:
    named = '"format": 1, "device_name": "x", "threads": 1, "torch": "2", "measured": ""'
    cache.mkdir(parents=True)
    path = cache / f"{cache_key(CPU)}.json"
    for text in ("", f'{{{named}, "flops_per_s": {{}}, "bytes_per_s": 1}}'):
        path.write_text(text)
        record = measured_limits(CPU)
        assert record.flops_per_s["fp32"] > 0
        assert read_json(path)["measured"] == record.measured
        assert measured_limits(CPU) == record


@pytest.mark.usefixtures("quick")
def test_a_cache_that_cannot_be_written_is_noted_and_no_error(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    record = measured_limits(CPU)
    assert record.bytes_per_s > 0
    (note,) = [one for one in record.notes if one.code == "limits_not_kept"]
    assert str(cache) in str(note.values["error"])


def test_the_precision_of_products_is_as_before_whatever_happens() -> None:
    before = tf32_modes()
    with suppress(RuntimeError), fp32_products_as("tf32"):
        with fp32_products_as("ieee"):
            assert not tf32_modes()["matmul"]
        assert tf32_modes()["matmul"]
        raise RuntimeError("broken")
    assert tf32_modes() == before


def test_limits_of_a_busy_machine_serve_the_other_trials_of_a_run_and_no_later_one(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BUSY_CORES", -1.0)
    first = measured_limits(CPU)
    assert [note.code for note in first.notes][-1:] == ["limits_busy"]
    assert first.busy
    assert measured_limits(CPU).measured == first.measured
    monkeypatch.setattr(limits, "BUSY_CORES", 1e9)
    monkeypatch.setattr(limits, "KEPT_BUSY", timedelta(0))
    second = measured_limits(CPU)
    assert not second.busy
    assert measured_limits(CPU).measured == second.measured != first.measured
