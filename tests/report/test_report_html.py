"""HTML: one file, nothing from outside, nothing from data that runs."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich_run import rich_report, rich_run, rich_study, row, run_data

from fabricate import Fabricated, made_study
from trainlab.analysis.comparison import comparison_of, side_by_side
from trainlab.analysis.document import Table
from trainlab.record.schema import note
from trainlab.report.contents import report_of
from trainlab.report.html import html_of

pytest.importorskip("vl_convert", reason="needs trainlab[report]")
SCRIPT = "<script>window.hacked = 1</script>"


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of each kind of tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def charts_of(page: str) -> dict[str, object]:
    found = re.search(r'<script id="charts" type="application/json">(.*?)</script>', page, re.S)
    assert found is not None
    charts: dict[str, object] = json.loads(found[1])["charts"]
    return charts


def test_the_page_is_whole_and_asks_for_nothing(tmp_path: Path) -> None:
    page = html_of(rich_report(tmp_path / "run"))
    for tag, attributes in Tags(page).tags:
        for name in ("src", "href"):
            told = attributes.get(name) or ""
            assert told.startswith(("#", "data:")) or not told, f"<{tag} {name}={told}>"
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_every_chart_has_its_place(tmp_path: Path) -> None:
    report = rich_report(tmp_path / "run")
    page = html_of(report)
    ids = [attributes.get("id") for _, attributes in Tags(page).tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert set(charts_of(page)) == {f"chart-{figure.id}" for figure in report.figures()} <= set(ids)


def test_nothing_from_the_data_becomes_a_tag(tmp_path: Path) -> None:
    study = rich_study(title=SCRIPT)
    folder = rich_run(
        tmp_path / "run", study=study, layers=lambda trial: [row(SCRIPT, [-1], type=SCRIPT)]
    )
    for trial in folder.trials():
        home = folder.trial(trial.id)
        noted = {
            "notes": (note("text", text=SCRIPT),),
            "resolved": {**trial.resolved, "device_name": SCRIPT},
        }
        home.write(trial.model_copy(update=noted))
        if home.operators.exists():
            record = home.operators.read()
            rows = [one.model_copy(update={"name": SCRIPT}) for one in record.rows]
            home.operators.write(record.model_copy(update={"rows": rows}))
    page = html_of(report_of(run_data(folder)))
    assert SCRIPT not in page
    scripts = [tag for tag, _ in Tags(page).tags if tag == "script"]
    assert len(scripts) == 3
    assert "&lt;script&gt;window.hacked" in page


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = rich_run(tmp_path / "run")
    for lang in ("en", "zh"):
        first, second = (html_of(report_of(run_data(folder), lang)) for _ in range(2))
        assert first == second


def test_a_run_without_charts_brings_no_chart_code(tmp_path: Path) -> None:
    study = made_study(seeds=1)
    folder = Fabricated(state=lambda trial: "pending").write(tmp_path / "run", study)
    page = html_of(report_of(run_data(folder)))
    assert len(page) < 100_000
    assert charts_of(page) == {}


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    first = run_data(rich_run(tmp_path / "a"))
    second = run_data(rich_run(tmp_path / "b", step_ms=lambda trial, n: 9 + 0.01 * n))
    found = side_by_side(first.evidence, second.evidence)
    for lang in ("en", "zh"):
        report = comparison_of(first, second, found, lang)
        page = html_of(report)
        assert len(charts_of(page)) == 2
        ids = [section.id for section in report.sections]
        assert ids == ["answer", "environment", "costs", "learning", "operators", "differs"]


def test_tables_are_numbered_as_in_the_other_formats(tmp_path: Path) -> None:
    report = rich_report(tmp_path / "run")
    captions = re.findall(r"<caption><b>(.*?)</b> (.*?)</caption>", unescape(html_of(report)))
    tables = [block for block in report.all_blocks() if isinstance(block, Table)]
    assert captions == [
        (f"Table {number}", table.caption) for number, table in enumerate(tables, start=1)
    ]
