import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainlab.machine.host import tf32_modes
from trainlab.measure import limits
from trainlab.measure.limits import (
    cache_key,
    fp32_products_as,
    measured_limits,
    product_flops,
)
from trainlab.record.files import read_json

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


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


def limits_text(flops_per_s: str, bytes_per_s: str) -> str:
    named = '"device_name": "x", "threads": 1, "torch": "2", "measured": ""'
    return f'{{{named}, "flops_per_s": {flops_per_s}, "bytes_per_s": {bytes_per_s}}}'


def best_s(work: Callable[[], object], repeats: int) -> float:
    """The fastest of some calls after a first one, by a plain clock."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def test_a_product_is_two_operations_for_each_of_its_multiply_adds() -> None:
    # Two by two: four results of two products and one sum each; the accumulator's start counts.
    assert product_flops(2) == 4 * 2 * 2
    assert product_flops(1000) == 2_000_000_000


def test_the_limits_of_the_cpu_are_measured_in_a_few_seconds() -> None:
    start = time.monotonic()
    record = measured_limits(CPU)
    assert time.monotonic() - start < 10
    assert set(record.flops_per_s) == {"fp32", "bf16"}
    assert record.flops_per_s["fp32"] > 1e9
    assert record.flops_per_s["bf16"] > 1e7
    assert 1e8 < record.bytes_per_s < 1e13
    assert (record.threads, record.torch) == (1, torch.__version__)
    assert record.device_name


def test_known_work_is_not_faster_than_the_measured_peaks() -> None:
    a, b = torch.ones(768, 768), torch.ones(768, 768)
    source, target = torch.ones(2**26), torch.empty(2**26)
    shares = []
    for _ in range(3):  # others on this machine may have slowed a measurement down
        record = measured_limits(CPU, again=True)
        product_s = best_s(lambda: torch.mm(a, b), 10)
        copy_s = best_s(lambda: target.copy_(source), 5)
        compute = product_flops(768) / product_s / record.flops_per_s["fp32"]
        memory = 2 * source.nbytes / copy_s / record.bytes_per_s
        shares.append(max(compute, memory))
        if shares[-1] < 1.3:
            break
    assert min(shares) < 1.3, shares


@pytest.mark.usefixtures("quick")
def test_a_second_call_takes_the_cached_limits_and_again_measures() -> None:
    first = measured_limits(CPU)
    assert measured_limits(CPU) == first
    renewed = measured_limits(CPU, again=True)
    assert renewed.measured > first.measured
    assert measured_limits(CPU) == renewed


@pytest.mark.usefixtures("quick")
def test_limits_are_cached_for_each_number_of_threads(cache: Path) -> None:
    one = measured_limits(CPU)
    torch.set_num_threads(2)
    two = measured_limits(CPU)
    assert (one.threads, two.threads) == (1, 2)
    assert len(list(cache.iterdir())) == 2


def test_the_cache_key_differs_wherever_the_limits_may(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [cache_key(CPU)]
    for name, value in {
        "cpu_model": lambda: "another",
        "usable_vcpus": lambda: 1000,
    }.items():
        monkeypatch.setattr(limits, name, value)
        keys.append(cache_key(CPU))
    monkeypatch.setattr(torch, "__version__", "9.9")
    keys.append(cache_key(CPU))
    assert len(set(keys)) == 4
    assert cache_key(CPU) == keys[-1]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        limits_text("{}", "1"),
        limits_text('{"fp32": 0}', "1"),
        limits_text('{"fp32": 1}', "NaN"),
    ],
)
def test_a_corrupt_cache_is_measured_again_and_replaced(text: str, cache: Path) -> None:
    cache.mkdir(parents=True)
    path = cache / f"{cache_key(CPU)}.json"
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


@pytest.mark.usefixtures("quick")
def test_slow_products_are_cut_short_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.mm

    def slow(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.bfloat16:
            time.sleep(0.02)
        return plain(a, b, out=out)

    monkeypatch.setattr(torch, "mm", slow)
    start = time.monotonic()
    record = measured_limits(CPU)
    assert time.monotonic() - start < 2
    assert record.flops_per_s["bf16"] == pytest.approx(product_flops(32) / 0.02, rel=0.5)
    (note,) = [one for one in record.notes if one.code == "limits_no_time"]
    assert (note.values["dtype"], note.values["size"]) == ("torch.bfloat16", 64)


@pytest.mark.usefixtures("quick")
def test_measuring_leaves_random_numbers_and_modes_alone() -> None:
    state, flags = torch.get_rng_state(), tf32_modes()
    with torch.enable_grad():
        measured_limits(CPU, again=True)
        assert torch.is_grad_enabled()
    with torch.no_grad():
        measured_limits(CPU, again=True)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert tf32_modes() == flags


@pytest.mark.parametrize("inside", ["ieee", "tf32"])
def test_the_precision_of_products_is_as_before_whatever_happens(inside: str) -> None:
    before, during = tf32_modes(), []

    def breaking() -> None:
        with fp32_products_as(inside):
            during.append(tf32_modes()["matmul"])
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        breaking()
    assert during == [inside == "tf32"]
    assert tf32_modes() == before
    with fp32_products_as("tf32"):
        with fp32_products_as("ieee"):
            assert not tf32_modes()["matmul"]
        assert tf32_modes()["matmul"]
    assert tf32_modes() == before


@pytest.mark.cuda
@needs_gpu
def test_a_gpu_has_a_limit_for_each_precision_and_its_flags_are_restored() -> None:
    before = tf32_modes()
    record = measured_limits(torch.device("cuda"))
    assert tf32_modes() == before
    assert record.device_name == torch.cuda.get_device_name()
    if torch.cuda.get_device_capability() >= (8, 0):
        peaks = record.flops_per_s
        assert peaks["fp32"] < peaks["tf32"] < peaks["bf16"]
    assert record.bytes_per_s > 1e11


@pytest.mark.cuda
@needs_gpu
def test_known_work_is_not_faster_than_the_measured_peaks_of_a_gpu() -> None:
    record = measured_limits(torch.device("cuda"), again=True)
    draw = torch.Generator("cuda").manual_seed(1)
    a = torch.randn(6144, 6144, generator=draw, device="cuda").bfloat16()

    def products() -> None:
        for _ in range(20):
            torch.mm(a, a)
        torch.cuda.synchronize()

    def copies() -> None:
        for _ in range(5):
            target.copy_(source)
        torch.cuda.synchronize()

    reached = 20 * product_flops(6144) / best_s(products, 10)
    assert reached < 1.05 * record.flops_per_s["bf16"]
    source = torch.ones(2**28, device="cuda")
    target = torch.empty_like(source)
    assert 5 * 2 * source.nbytes / best_s(copies, 5) < 1.05 * record.bytes_per_s


def test_limits_of_a_busy_machine_are_measured_again_and_only_get_better(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BUSY_CORES", -1.0)
    first = measured_limits(CPU)
    assert first.busy
    second = measured_limits(CPU)
    assert second.measured != first.measured
    assert second.bytes_per_s >= first.bytes_per_s
    monkeypatch.setattr(limits, "BUSY_CORES", 1e9)
    third = measured_limits(CPU)
    assert not third.busy
    assert measured_limits(CPU).measured == third.measured
