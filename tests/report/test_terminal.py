"""What the terminal prints: nothing of a sentence is lost, at any width."""

from io import StringIO
from operator import itemgetter
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from fabricate import Fabricated, made_study
from trainlab.analysis.document import Entry, Paragraph, Table
from trainlab.analysis.evidence import gather
from trainlab.analysis.finding import RunData
from trainlab.analysis.overview import data_of, shortened
from trainlab.analysis.tables import bullets, name, table_of, value
from trainlab.cli.run_summary import Summary
from trainlab.record.schema import note
from trainlab.report.contents import report_of
from trainlab.report.terminal import print_blocks
from trainlab.words import LANGUAGES, Words


def printed(console_width: int, show: object) -> str:
    console = Console(file=StringIO(), width=console_width, force_terminal=False)
    show(console)  # type: ignore[operator]
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_character_of_a_sentence_is_lost_at_any_width(lang: str, rich: RunData) -> None:
    words, shown = Words(lang), rich.findings
    sentences = [one.sentence(words) for one in shown]
    for width in range(70, 141, 5):
        text = printed(width, lambda c: print_blocks(c, [bullets(shown, words)], words))
        seen = "".join(text.split())
        lost = [one for one in sentences if "".join(one.split()) not in seen]
        assert not lost, f"{width} columns: {lost[0]}"


def test_a_note_is_told_once_with_its_number_of_trials(tmp_path: Path) -> None:
    folder = Fabricated().write(tmp_path / "run", made_study(vary={"lr": (0.1, 0.2)}))
    for trial in folder.trials():
        noted = trial.model_copy(update={"notes": (note("samples_no_images"),)})
        folder.trial(trial.id).write(noted)
    evidence, words = gather(folder), Words("en")
    told = printed(200, lambda console: Summary(console, evidence, words).print_remarks())
    assert told == "6 of 6 trials: sample inputs: not images, so TensorBoard has no picture\n"
    sections = {section.id: section for section in report_of(data_of(evidence), "en").sections}
    assert "trouble" not in sections, "every trial ended well"
    (table,) = sections["notes"].blocks
    assert isinstance(table, Table)
    assert [entry.text for entry in table.rows[0].entries][1:] == ["6"]

    # A long error is cut after a word.
    assert shortened("short enough", 12) == "short enough"
    assert shortened("a long message of an error", 17) == "a long message …"


def test_a_table_that_goes_on_below_says_again_what_each_row_is_about() -> None:
    rows = [(lr, mode, "x" * 20) for lr in ("lr=0.1", "lr=0.2") for mode in ("train", "test")]
    fields = [name(heading, itemgetter(n)) for n, heading in enumerate(("cell", "mode"))]
    fields += [value(f"figure {n}", lambda row: Entry(row[2])) for n in range(5)]
    table = table_of("Costs", fields, rows)
    text = printed(80, lambda console: print_blocks(console, [table], Words("en")))
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    headings = [line.split() for line in text.splitlines() if "cell" in line]
    assert [line[:2] for line in headings] == [["cell", "mode"]] * len(headings)
    assert len(headings) > 1
    assert text.count("lr=0.2  train") == len(headings)


def test_chinese_fills_its_lines_and_none_begins_with_a_stop() -> None:
    text = "每批时间取 95% 的范围；" * 20 + "（两个进程太少，无法给出）。"
    told = printed(80, lambda console: print_blocks(console, [Paragraph(text)], Words("zh")))
    lines = told.splitlines()
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(70 < cell_len(line) <= 80 for line in lines[:-1])
    assert not any(line[0] in "，。；：、）？" for line in lines)
