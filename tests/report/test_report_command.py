"""trainlab report, and what it costs to write one."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest
from rich_run import rich_run

from command import called
from trainlab.analysis.evidence import gather
from trainlab.errors import SpecError
from trainlab.extras import MissingExtraError, import_extra
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
    asked = (folder.path, "--format", "html", "--lang", "zh", "--out", tmp_path / "out")
    assert called("report", *asked).stdout == f"{tmp_path / 'out' / 'report.html'}\n"
    assert called("report", folder.path, "--lang", "fr").code == 2


def test_a_comparison_is_one_file(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    first, second = (gather(rich_run(tmp_path / name)) for name in "ab")
    write_comparison(first, second, tmp_path / "deep" / "both.html", "zh")
    assert "两台机器" in (tmp_path / "deep" / "both.html").read_text()
