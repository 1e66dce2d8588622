"""trainlab report, and what it costs to write one."""

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from rich_run import rich_run
from typer.testing import CliRunner

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.cli.application import add_verb
from trainlab.cli.hand_in_verbs import report as report_verb
from trainlab.errors import SpecError
from trainlab.extras import MissingExtraError, import_extra
from trainlab.record.run_folder import RunFolder
from trainlab.report.writing import check_formats, write_comparison, write_report


def test_formats_are_checked_before_anything_is_read() -> None:
    assert check_formats("html, pdf,html") == ("html", "pdf")
    with pytest.raises(SpecError, match="--format: got 'word', must be of html, md, pdf"):
        check_formats("word")


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "typst":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setitem(sys.modules, "typst", None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'trainlab\[report\]'"):
        import_extra("typst", "a PDF report")


@pytest.mark.slow
def test_all_formats_are_written_and_told(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    pytest.importorskip("typst", reason="needs trainlab[report]")
    folder = rich_run(tmp_path / "run")
    paths = write_report(gather(folder), folder.report_folder, ("html", "md", "pdf"), "zh")
    assert paths == [folder.report_folder / f"report.{name}" for name in ("html", "md", "pdf")]
    assert all(path.stat().st_size > 1000 for path in paths)
    assert (folder.report_folder / "figures" / "flow.png").exists()


def test_the_command_tells_where_the_report_is(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    folder = rich_run(tmp_path / "run")
    app = typer.Typer()
    add_verb(app, "report", report_verb, "")
    asked = [str(folder.path), "--format", "html", "--lang", "zh", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(tmp_path / "out" / "report.html")
    wrong = CliRunner().invoke(app, [str(folder.path), "--lang", "fr"])
    assert wrong.exit_code == 2


def test_a_comparison_is_one_file(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    first, second = (gather(rich_run(tmp_path / name)) for name in "ab")
    write_comparison(first, second, tmp_path / "deep" / "both.html", "zh")
    assert "两台机器" in (tmp_path / "deep" / "both.html").read_text()


WRITE = """
import sys, time
from pathlib import Path
from trainlab.lab import open_run
from trainlab.report.writing import write_report
run = open_run(Path(sys.argv[1]))
write_report(run.evidence(), run.report_folder, sys.argv[2].split(","))
status = Path("/proc/self/status")
peak = [x.split()[1] for x in status.read_text().splitlines() if x.startswith("VmHWM")]
print(time.process_time(), *peak)
"""


def cost_of(folder: RunFolder, formats: str) -> tuple[float, float]:
    """Processor seconds, which other tests do not disturb, and MiB at the peak of a fresh process."""
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    pytest.importorskip("typst", reason="needs trainlab[report]")
    # Not ru_maxrss: a process starts from that of the one that made it.
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's own word on memory")
    arguments = [sys.executable, "-c", WRITE, str(folder.path), formats]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    seconds, kib = done.stdout.split()
    return float(seconds), float(kib) / 1024


@pytest.mark.full
@pytest.mark.parametrize(("formats", "limit_s"), [("html", 10), ("html,pdf", 15)])
def test_a_usual_report_is_written_in_seconds(tmp_path: Path, formats: str, limit_s: float) -> None:
    seconds, _ = cost_of(rich_run(tmp_path / "run"), formats)
    assert seconds < limit_s


@pytest.mark.full
def test_a_thousand_trials_take_less_than_a_minute_and_a_gigabyte(tmp_path: Path) -> None:
    lrs, widths = [0.01 * n for n in range(1, 21)], list(range(1, 11))
    study = made_study(seeds=5, vary={"lr": lrs, "hidden": widths}, settings={"epochs": 20})
    folder = Fabricated(step_points=5, final=_by_seed).write(tmp_path / "run", study)
    assert len(folder.trials()) == 1000
    seconds, mib = cost_of(folder, "html")
    assert seconds < 60
    assert mib < 1024
    assert (folder.report_folder / "report.html").stat().st_size < 10e6


def _by_seed(trial: Any) -> dict[str, float]:
    value = 0.5 + 0.01 * trial.seed
    return {"train/loss": value, "test/loss": value, "test/accuracy": value}
