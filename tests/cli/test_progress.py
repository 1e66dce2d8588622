"""What is shown while trials run, on a real terminal and off one."""

import io
import sys
import time
from pathlib import Path

import pytest
from benchmarks.lab import watched
from rich.console import Console

from trainlab.cli.progress import heartbeat
from trainlab.cli.progress.heartbeat import showing_status


def test_silence_lasts_until_something_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now)
    monkeypatch.setattr(heartbeat, "SILENCE_S", 1.0)
    silence = heartbeat.Silence()
    silence.restart()
    now = 100.9
    assert not silence.is_too_long()
    now = 101.1
    assert silence.is_too_long()
    silence.restart()
    assert not silence.is_too_long()
    now = 2101.0  # in a long run one hundredth of the time may pass
    heartbeat.Silence().restart()
    now = 2111.0
    assert not silence.is_too_long()
    now = 2122.0
    assert silence.is_too_long()


def test_off_a_terminal_a_long_wait_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "SILENCE_S", 0.4)
    shown = Console(file=io.StringIO())
    with showing_status(shown, "writing the report"):
        time.sleep(2.2)
    assert shown.file.getvalue().startswith("writing the report, 1 s\n")


def test_on_a_terminal_a_study_with_costs_never_stands_still(
    tiny_file: Path, tmp_path: Path
) -> None:
    words = [f"{tiny_file}:tiny", "--batch-size", "10,20", "--device", "cpu", "--no-report"]
    words += ["--profile", "--weights", "untrained", "--processes", "1", "--budget-s", "0.1"]
    seen = watched(
        [sys.executable, "-m", "trainlab", "run", *words, "--out", str(tmp_path / "r")],
        terminal=True,
    )
    assert seen.code == 0
    assert seen.first_left_s is not None
    assert seen.first_left_s < seen.total_s / 2
    # How long it stands still at most is measured in benchmarks/lab.py; here, that it moves at all.
    assert seen.num_updates > seen.total_s


def test_off_a_terminal_a_long_epoch_is_told_about_while_it_lasts(
    tiny_file: Path, tmp_path: Path
) -> None:
    slow = """
import time
def slow_loss(outputs, targets):
    time.sleep(0.07)
    return F.cross_entropy(outputs, targets)
tiny = Workload(name="tiny", model=model, data=data, loss=slow_loss, defaults={"lr": 0.01})
"""
    tiny_file.write_text(tiny_file.read_text() + slow)
    words = [f"{tiny_file}:tiny", "--batch-size", "1", "--epochs", "1", "--device", "cpu"]
    seen = watched(
        [sys.executable, "-m", "trainlab", "run", *words, "--out", str(tmp_path / "r")],
        terminal=False,
    )
    assert seen.code == 0
    assert seen.total_s > 7.0
    assert seen.first_left_s is not None
    assert seen.first_result_s is not None
    assert seen.first_left_s < seen.first_result_s
