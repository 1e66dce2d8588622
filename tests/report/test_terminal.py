"""What the terminal prints: nothing of a sentence is lost, at any width."""

import re
from collections.abc import Callable
from io import StringIO
from operator import itemgetter
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich_run import rich_run, rich_study
from varied_run import learn_run

from fabricate import Fabricated, made_study
from trainlab.analysis.answer import Answer, answer
from trainlab.analysis.document import Entry, Paragraph, Table
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.finding import RunData
from trainlab.analysis.overview import data_of, shortened
from trainlab.analysis.tables import bullets, name, table_of, value
from trainlab.cli.run_summary import Summary
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import note
from trainlab.report.contents import report_of
from trainlab.report.terminal import print_blocks
from trainlab.report.wrapping import cells
from trainlab.words import LANGUAGES, Words
from watched_runs import WatchedRun


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


MOST_LINES = 40


def summary(folder: RunFolder, lang: str = "en", *, with_all: bool = False) -> str:
    """What `trainlab show` prints on 80 columns."""
    shown = Summary(Console(file=StringIO(), width=80), gather(folder), Words(lang))
    shown.print_all(folder, with_all=with_all)
    return str(shown.console.file.getvalue())  # type: ignore[attr-defined]


def answered(evidence: Evidence, words: Words) -> Answer:
    return answer(evidence, data_of(evidence).findings, words)


def mnist_lab(path: Path) -> RunFolder:
    """Three batch sizes whose times vary a lot, in both modes, on few seeds."""

    def step_ms(trial: Trial, process: int) -> float:
        return (0.5 + 0.02 * trial.settings.batch_size) * (1 + 0.2 * (process % 3))

    def phases_ms(trial: Trial) -> dict[str, float]:
        optimizer = 0.3 / (0.5 + 0.02 * trial.settings.batch_size)
        return {"forward": 1 - optimizer, "optimizer": optimizer}

    final = {"test/accuracy": 0.9, "test/loss": 0.3, "train/loss": 0.4}
    study = rich_study(title="What do tensor operations cost?", seeds=5)
    spread = lambda trial: {n: v + 0.01 * (trial.seed * 7 % 5) for n, v in final.items()}  # noqa: E731
    return rich_run(path, study, step_ms=step_ms, phases_ms=phases_ms, final=spread)


def script(path: Path) -> RunFolder:
    return WatchedRun().write(path)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("kind", [mnist_lab, learn_run, script])
def test_the_answer_stands_first_and_all_fits_a_screen(
    kind: Callable[[Path], RunFolder], lang: str, tmp_path: Path
) -> None:
    folder = kind(tmp_path / "run")
    lines = (
        summary(folder, lang).replace(str(folder.path), "runs/mnist-lab-2026-01-31").splitlines()
    )
    # The line of the report comes with `run`; a longer line takes several on the screen.
    assert 1 + sum(max(1, -(-cells(line.rstrip()) // 80)) for line in lines) <= MOST_LINES
    lead = next(answered(gather(folder), Words(lang)).sections(Words(lang)))
    assert lines[0].strip()
    assert "".join(lines[1].split()) in "".join(str(lead.blocks[0]).split())
    assert sum("─" * 20 in line for line in lines) == 1, "one table"


def test_what_is_not_shown_at_first_is_shown_with_all(tmp_path: Path) -> None:
    folder, words = mnist_lab(tmp_path / "run"), Words("en")
    few, everything = summary(folder), summary(folder, with_all=True)
    for told in (words("learn_table"), words("cost_table"), "(measured again)", "lower quartile"):
        assert told not in few
        assert told in everything
    assert few.count("The first step takes longer") < everything.count(
        "The first step takes longer"
    )
    assert "trainlab show" in few
    assert everything.splitlines()[:8] == few.splitlines()[:8]


def test_of_many_settings_the_best_and_the_base_stand_in_the_table(tmp_path: Path) -> None:
    rates = tuple(round(0.01 * number, 2) for number in range(1, 15))
    study = made_study(vary={"lr": rates}, seeds=3)

    def final(trial: Trial) -> dict[str, float]:
        return {"test/accuracy": 0.5 + 0.1 * (trial.cell == "lr=0.09") + 0.001 * trial.seed}

    text = summary(Fabricated(final=final).write(tmp_path / "run", study))
    table = text.partition("─\n")[2].partition("Means over seeds")[0]
    assert [line.split()[0] for line in table.splitlines()] == ["lr=0.01", "lr=0.09"]
    assert "Not shown: 12 more." in " ".join(text.split())


def test_of_one_setting_some_epochs_are_shown_the_first_and_last_among_them(tmp_path: Path) -> None:
    study = made_study(seeds=1, settings={"epochs": 50})
    text = summary(Fabricated().write(tmp_path / "run", study))
    table = text.partition("─ \n")[2].splitlines()
    assert [int(line.split()[0]) for line in table[:6]] == [1, 11, 21, 30, 40, 50]
    assert not table[6].strip()


def test_why_a_figure_is_a_range_is_said_once(tmp_path: Path) -> None:
    text = " ".join(summary(mnist_lab(tmp_path / "run")).split())
    assert text.count("Only ranges are known, since") == 1
    assert len(re.findall(r"\d to \d+(\.\d+)? times as fast per sample", text)) == 2
