"""A run in a notebook or a session: its HTML, its report, its charts, whatever state it is in."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

import trainlab as product
from fabricate import Fabricated, made_study
from trainlab.errors import SpecError
from trainlab.lab import Run
from trainlab.spec import CostSpec

HOSTILE = "<img src=x onerror=alert(1)>"
VOID = {"img", "br", "wbr"}


class Balanced(HTMLParser):
    """Counts elements, and sees that each is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: list[str] = []
        self.feed(html)
        assert not self.opened

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


@pytest.fixture
def run(tmp_path: Path) -> Run:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=2, cost=CostSpec(processes=2))
    Fabricated(step_points=1).write(tmp_path / "r", study)
    return product.open_run(tmp_path / "r")


@pytest.mark.parametrize(("lang", "heading"), [("en", "What each setting learned"), ("zh", "种子")])
def test_a_run_shows_its_tables_and_charts(
    run: Run, lang: str, heading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLAB_LANG", lang)
    html = run._repr_html_()
    seen = Balanced(html).seen
    assert seen.count("table") == 2
    assert seen.count("img") >= 2
    assert all(told in html for told in (heading, "lr=0.1", "run.report()"))
    assert not any(told in html for told in ("://", "<script"))


def test_names_in_a_run_are_text_and_no_markup(tmp_path: Path) -> None:
    study = made_study(workload=HOSTILE, vary={"lr": (0.1, 0.2)}, seeds=2)
    study = study.model_copy(update={"title": f"{HOSTILE}?", "name": "x"})
    Fabricated().write(tmp_path / "r", study)
    html = Run(tmp_path / "r")._repr_html_()
    Balanced(html)
    assert HOSTILE not in html
    assert "&lt;img src=x" in html


@pytest.mark.parametrize("state", ["failed", "interrupted", "running", "pending"])
def test_a_run_that_did_not_end_well_says_so(run: Run, state: str) -> None:
    folder = run.trial("learn-lr=0.1-seed1")
    folder.write(folder.read().model_copy(update={"state": state}))
    html = run._repr_html_()
    Balanced(html)
    assert "Not complete" in html
    assert "learn-lr=0.1-seed1" in html
    assert f"1 {state}" in repr(run)


def test_a_damaged_run_never_raises(run: Run) -> None:
    for name in ("trials/learn-lr=0.1-seed1/curve.jsonl", "study.json"):
        (run.path / name).write_text("[1, null]\n")
        Balanced(Run(run.path)._repr_html_())
        assert str(run.path) in repr(Run(run.path))


def test_findings_are_shown_as_their_sentences(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    findings, sentences = run.findings(), run.sentences()
    assert findings == tuple(findings)
    assert repr(findings) == "\n".join(sentences)
    assert repr(findings[0]) == f"<Finding {findings[0].kind}: {sentences[0]}>"
    html = findings._repr_html_()
    assert Balanced(html).seen == ["ul", *["li"] * len(sentences)]
    monkeypatch.setenv("TRAINLAB_LANG", "zh")
    assert run.sentences("zh")[0] in repr(findings)


def test_a_mistake_in_a_notebook_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_cell("import trainlab; trainlab.run('mnist-cn')")
    told = capsys.readouterr().out
    assert told.startswith("WorkloadError: workload 'mnist-cn' is not known; did you mean")
    assert told.count("\n") == 1


def test_a_plot_of_a_metric_is_its_curve(run: Run, tmp_path: Path) -> None:
    chart = run.plot("test/accuracy")
    assert {row["cell"] for row in chart.rows} == {"lr=0.1", "lr=0.2"}
    shown = chart._repr_mimebundle_()
    assert shown["image/svg+xml"].startswith("<svg")
    assert "test accuracy" in shown["text/plain"].lower()
    assert chart.save(tmp_path / "x.svg").read_text() == chart.svg()
    assert chart.save(tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SpecError, match=r"x\.gif: must end in \.svg or \.png"):
        chart.save("x.gif")


def test_an_unknown_metric_is_told_with_those_there_are(run: Run) -> None:
    told = r"plot: got 'test/acuracy'.*did you mean test/accuracy\?.*it has .*test/loss.*step_ms"
    with pytest.raises(SpecError, match=told):
        run.plot("test/acuracy")
