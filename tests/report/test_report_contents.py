"""The report as a value: what it says, in which order, and that its numbers are the records'."""

import io
import itertools
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich_run import rich_run, run_data, section_of

from fabricate import DATA, Fabricated, made_study
from trainlab.analysis.cost import cost_table
from trainlab.analysis.document import Document, Entry, Paragraph, Statements, Table
from trainlab.analysis.evidence import gather
from trainlab.analysis.method import Overhead, overhead_text
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import note
from trainlab.report.contents import report_of
from trainlab.report.repeat import study_file, typed_command
from trainlab.report.terminal import print_blocks
from trainlab.spec import CostSpec
from trainlab.spec.probe import probe_of
from trainlab.spec.question import layout_of, read_question
from trainlab.words import Words

Reports = dict[str, Document]


def tables_of(document: Document) -> list[Table]:
    return [block for block in document.all_blocks() if isinstance(block, Table)]


def test_every_id_is_there_once_and_the_answer_has_at_most_five_lines_that_lead_to_evidence(
    reports: Reports,
) -> None:
    for report in reports.values():
        assert report.cells == ("batch_size=1", "batch_size=16", "batch_size=64")
        ids = [one.id for one in (*report.figures(), *report.drawings(), *report.sections)]
        assert len(set(ids)) == len(ids), "each has its own; no chart is drawn twice"
        answer = section_of(report, "answer")
        told = answer.blocks[0]
        assert isinstance(told, Statements)
        assert 1 < len(told.items) <= 5
        lists = [block for block in answer.all_blocks() if isinstance(block, Statements)]
        links = {item.section for block in lists for item in block.items}
        assert links
        places = {one.id for section in report.sections for one in section.with_inner()}
        rows = {row.id for table in tables_of(report) for row in table.rows}
        assert links <= places | rows | {one.anchor for one in report.figures()}
        assert links & rows, "a comparison leads to its row"


def test_a_study_without_cost_has_no_sections_about_it_and_a_subset_is_told(tmp_path: Path) -> None:
    made = Fabricated(data=lambda trial: DATA.model_copy(update={"is_subset": True}))
    folder = made.write(tmp_path / "run", made_study(vary={"lr": [0.1, 0.01]}))
    report = report_of(run_data(folder))
    assert any("subset of tiny" in notice.text for notice in report.notices)
    told = [section.id for section in report.sections]
    assert told == ["answer", "learning", "environment", "comparison", "method", "repeat", "files"]
    # What a reader first wants to see is open, the rest folded.
    assert [one.id for one in report.sections if not one.is_folded] == told[:3]


def test_trials_that_went_wrong_appear_as_what_they_are_and_notes_do_not_hide_among_them(
    tmp_path: Path,
) -> None:
    states = {2: "failed", 3: "interrupted", 4: "pending", 5: "diverged"}
    folder = rich_run(
        tmp_path / "run",
        state=lambda trial: states.get(trial.seed, "done") if trial.kind == "learn" else "done",
    )
    for trial in folder.trials():
        noted = trial.model_copy(update={"notes": (note("samples_no_images"),)})
        folder.trial(trial.id).write(noted)
    trouble = section_of(report_of(run_data(folder)), "trouble").blocks[0]
    assert isinstance(trouble, Table)
    told = [row.entries[1].text for row in trouble.rows]
    assert sorted(told) == sorted(3 * ["failed", "interrupted", "not run", "diverged"])
    assert any("RuntimeError: it broke" in row.entries[3].text for row in trouble.rows)
    assert not any("TensorBoard" in row.entries[3].text for row in trouble.rows)


def test_the_command_and_the_study_file_ask_for_the_same_study(tmp_path: Path) -> None:
    for program in ("/opt/venv/bin/trainlab", "src/trainlab/__main__.py"):
        assert typed_command(f"{program} run mnist-lab") == "trainlab run mnist-lab"
    assert typed_command("python my_script.py") == "python my_script.py"
    path = tmp_path / "study.toml"
    for asked in (
        {"vary": {"batch_size": [1, 16], "lr": [0.1, 1e-5]}},
        {"vary": {"lr": [0.1]}, "cells": ({"optimizer": "sgd", "hidden": 3},), "design": "grid"},
        {"probes": (probe_of("relu,fc1:grad_input:sq_sum"), probe_of("*:activation:histogram@9"))},
        {"title": 'a "quoted"\nline \\ and é 图', "targets": {"test/accuracy": 0.5}},
    ):
        study = made_study(**asked)
        path.write_text(study_file(study), encoding="utf-8")
        question = read_question(path)
        again = [cell.settings for cell in layout_of(question, {}, ("hidden",))[0]]
        # A list beside a grid begins with what all its cells share; a level is all a grid writes out.
        assert all(cell.settings in again for cell in study.all_cells)
        told = (question.title, question.targets, question.probes)
        assert told == (study.title, study.targets, study.probes)


def test_what_else_differs_is_told_once_below_the_rows(tmp_path: Path) -> None:
    subset = DATA.model_copy(update={"num_train": 96})
    made = Fabricated(
        data=lambda trial: subset if trial.settings.batch_size == 16 else DATA,
        final=lambda trial: {"test/accuracy": 0.9 - 0.2 * (trial.settings.batch_size == 16)},
    )
    study = made_study(vary={"batch_size": (1, 16)}, seeds=3)
    report = report_of(run_data(made.write(tmp_path / "run", study)))
    texts = [b.text for b in report.all_blocks() if isinstance(b, Paragraph)]
    assert texts.count("Beware: these also differ: data.num_train: 960 against 96.") == 1


def test_the_terminal_cuts_nothing_off_a_table(reports: Reports) -> None:
    # A long name breaks after its parts and never within a number.
    assert Entry("batch_size=16,lr=0.001").parts == ["batch_", "size=16,", "lr=0.001"]
    assert Entry("encoder.layers.0.out_proj").parts == ["encoder.", "layers.0.", "out_", "proj"]
    assert Entry("batch_size=16").parts == ["batch_size=16"]
    words, tables = Words("zh"), tables_of(reports["zh"])
    assert len(tables) > 8
    for width, table in itertools.product((80, 120), tables):
        console = Console(file=io.StringIO(), width=width)
        print_blocks(console, [table], words)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(cell_len, lines)) <= width
        shown = "".join("".join(lines).split())
        columns = [n for n, c in enumerate(table.columns) if width >= 100 or not c.is_extra]
        for row in table.shown:
            for number in columns[1:]:
                entry = "".join(row.entries[number].text.split())
                if table.columns[number].is_number:
                    assert entry in shown, (table.caption, entry)


def test_a_grid_of_two_factors_is_drawn_as_a_heat_map(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 16), "lr": (0.1, 0.001)}, seeds=2)
    report = report_of(run_data(Fabricated().write(tmp_path / "a", study)))
    (grid,) = (one for one in report.figures() if one.id == "grid-test-accuracy")
    assert len(grid.spec["data"]["values"]) == 4
    assert "batch_size=16,lr=0.001" in grid.alt
    study = made_study(vary={"batch_size": (1, 16, 64)}, seeds=2)
    report = report_of(run_data(Fabricated().write(tmp_path / "b", study)))
    assert not [one for one in report.figures() if one.id.startswith("grid-")]


def test_a_step_of_several_batches_is_not_called_a_batch(tmp_path: Path) -> None:
    for accumulate, heading in ((1, "ms per batch"), (2, "ms per step")):
        study = made_study(cost=CostSpec(processes=1), settings={"accumulate": accumulate})
        evidence = gather(Fabricated().write(tmp_path / str(accumulate), study))
        table = cost_table(evidence, Words("en"))
        assert heading in [column.heading for column in table.columns]
        assert ("one update" in table.note) == (accumulate > 1)


def test_a_heading_names_what_there_is(tmp_path: Path) -> None:
    for heading, metrics in {
        "Loss and accuracy": ("test/loss", "test/accuracy"),
        "Loss and metrics": ("test/loss", "test/mae"),
        "Loss": ("train/loss", "test/loss"),
    }.items():
        made = Fabricated(final=lambda trial, names=metrics: dict.fromkeys(names, 0.5))
        report = report_of(run_data(made.write(tmp_path / heading, made_study())))
        assert section_of(report, "learning").title == heading
    made = Fabricated(step_points=3)
    report = report_of(run_data(made.write(tmp_path / "steps", made_study())))
    (figure,) = (one for one in report.figures() if one.id == "trend-train-loss")
    assert "at the last logged step it is base: 0.5" in figure.alt
    assert "the table has the mean over the last epoch" in figure.note


# What a report says about how it measured: only what the records show.


def loaded(folder: RunFolder, **load: Any) -> RunFolder:
    """With this load during every measurement."""
    files = [folder.trial(trial.id).cost for trial in folder.trials()]
    for file in (one for one in files if one.exists()):
        meanwhile = file.read().load.model_copy(update=load)
        file.write(file.read().model_copy(update={"load": meanwhile}))
    return folder


def method_text(folder: RunFolder) -> str:
    blocks = section_of(report_of(run_data(folder)), "method").blocks
    return " ".join(block.text for block in blocks if isinstance(block, Paragraph))


def test_the_method_tells_what_else_ran_and_what_was_compared(tmp_path: Path) -> None:
    text = method_text(loaded(rich_run(tmp_path / "r"), others_cores=0.83, stolen_cores=0.11))
    assert "alone on the machine" not in text
    assert "other programs kept 0.83 cores busy" in text
    assert "took 0.11 away" in text
    assert "differs between compared settings" in text
    single = Fabricated().write(tmp_path / "one", made_study(seeds=(1, 2)))
    assert "differs between compared settings" not in method_text(single)
    for num_pairs, is_range in ((5, True), (6, False)):
        overhead = Overhead("layers", 0.1, 0.05, 0.2, num_pairs)
        assert ("range +5.0%, +20.0%" in overhead_text([overhead], Words("en"))) == is_range


def test_unstable_measurements_with_trained_weights_are_told_from_the_others(
    tmp_path: Path,
) -> None:
    study = made_study(cost={"processes": 3, "weights": "both"}, vary={"lr": (0.1, 0.01)})
    folder = Fabricated(step_ms=lambda t, process: 2.0 + process).write(tmp_path / "r", study)
    report = report_of(run_data(loaded(folder, others_cores=1.5)))
    caption = Words("en")("warning_table")
    (table,) = (one for one in tables_of(report) if one.caption.startswith(caption))
    names = [row.entries[0].text for row in table.rows]
    assert len(names) == len(set(names))
    assert {"lr=0.01 (trained weights)", "lr=0.01"} <= set(names)
