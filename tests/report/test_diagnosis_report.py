"""The report of a diagnosis begins with what limits the script, and has one verdict on a ratio."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from diagnosed_runs import record_of
from trainlab.analysis.document import Statements, Table
from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import data_of
from trainlab.cli.run_summary import Summary
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import LimitRow, TriedRow
from trainlab.report.contents import report_of
from trainlab.report.markdown import markdown_of
from trainlab.report.notebook import glance
from trainlab.words import LANGUAGES, Words
from watched_runs import WatchedRun

PROOF = TriedRow(
    change="same_batch",
    is_remedy=False,
    verdict="confirmed",
    ratio=0.4,
    low=0.38,
    high=0.42,
    processes=3,
)
RECORD = record_of(
    LimitRow(limit="data", share=0.62, potential=0.62, verdict="confirmed", tried=[PROOF])
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = WatchedRun().write(tmp_path / "run", vary={"batch-size": [16, 64]}, profile=True)
    made.diagnosis.write(RECORD)
    return made


def test_what_limits_the_script_is_the_title_and_the_answer(run: RunFolder) -> None:
    document = report_of(data_of(gather(run)), "en")
    assert document.title == "What limits train.py"
    text = markdown_of(document)
    answer = text.partition("## Question and answer")[2].partition("\n## ")[0]
    assert "Waiting for data takes 62.0% of each update." in answer
    assert "Proof: with the same batch again" in answer


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_ratio_has_one_verdict(run: RunFolder, lang: str) -> None:
    """Studies compare by other rules: beside the diagnosis that would be a second verdict."""
    data = data_of(gather(run))
    ids = [section.id for section in report_of(data, lang).sections]
    assert ids[0] == "answer"
    assert "comparison" not in ids
    assert not {finding.kind for finding in data.findings} & {"cost", "undecided"}


def test_at_a_glance_it_is_the_same_answer(run: RunFolder) -> None:
    _, blocks = glance(data_of(gather(run)), Words("en"))
    told = [item.text for block in blocks if isinstance(block, Statements) for item in block.items]
    assert told[0] == "Waiting for data takes 62.0% of each update."
    captions = [block.caption for block in blocks if isinstance(block, Table)]
    assert "Where the script's time goes" in captions


def test_a_damaged_diagnosis_is_left_out_and_named(run: RunFolder) -> None:
    run.diagnosis.path.write_text("{")
    evidence = gather(run)
    assert evidence.diagnosis is None
    assert [damage.reason.partition(":")[0] for damage in evidence.damaged] == ["diagnosis.json"]
    assert report_of(data_of(evidence), "en").title == "train"


def test_the_terminal_names_the_parts_in_its_language_and_where_the_report_is(
    run: RunFolder,
) -> None:
    console = Console(width=90, file=sys.stdout)
    with console.capture() as captured:
        Summary(console, data_of(gather(run)), Words("zh")).print_diagnosis(run)
    text = captured.get()
    assert "反向" in text
    assert "backward" not in text
    assert "95% CI" not in text
    assert "trainlab report" in text
