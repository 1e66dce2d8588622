"""The report as a value: what it says, in which order, and that its numbers are the records'."""

import io
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich_run import SUBSET, rich_data, rich_report, rich_run, rich_study, run_data, section_of

from fabricate import DATA, Fabricated, made_study
from trainlab.analysis.cost import cost_table
from trainlab.analysis.document import (
    Bullets,
    Document,
    Entry,
    Figure,
    Paragraph,
    Statements,
    Table,
)
from trainlab.analysis.evidence import gather
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder
from trainlab.report.contents import report_of
from trainlab.report.repeat import study_file, typed_command
from trainlab.report.terminal import print_blocks
from trainlab.spec import CostSpec
from trainlab.spec.probe import probe_of
from trainlab.spec.question import layout_of, read_question
from trainlab.stats.means import mean_of
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_value

Reports = dict[str, Document]
ORDER = [
    *("answer", "environment", "network", "learning", "operators", "phases", "comparison"),
    *("scaling", "hardware", "cold", "method", "repeat", "files"),
]


def tables_of(document: Document) -> list[Table]:
    return [block for block in document.all_blocks() if isinstance(block, Table)]


def test_sections_come_in_the_order_people_read(reports: Reports) -> None:
    for report in reports.values():
        assert [section.id for section in report.sections] == ORDER
        assert report.cells == ("batch_size=1", "batch_size=16", "batch_size=64")
        ids = [one.id for one in (*report.figures(), *report.drawings(), *report.sections)]
        assert len(set(ids)) == len(ids), "each has its own; no chart is drawn twice"


def test_a_study_without_cost_has_no_sections_about_it(tmp_path: Path) -> None:
    folder = Fabricated().write(tmp_path / "run", made_study(vary={"lr": [0.1, 0.01]}))
    report = report_of(run_data(folder))
    told = [section.id for section in report.sections]
    assert told == ["answer", "environment", "learning", "comparison", "method", "repeat", "files"]


def test_the_answer_has_at_most_five_lines_and_says_what_differs(reports: Reports) -> None:
    told, chart = section_of(reports["en"], "answer").blocks
    assert isinstance(told, Statements)
    assert isinstance(chart, Figure)
    assert 1 < len(told.items) <= 5
    assert any("best test accuracy: 95.2%" in one.text for one in told.items)
    assert told.items[0].text == "Batch 64 trains 19 times as fast per sample as batch 1."


def test_every_sentence_of_the_answer_leads_to_a_section(reports: Reports) -> None:
    report = reports["en"]
    ids = {one.id for section in report.sections for one in (section, *section.sections)}
    told = [b for b in section_of(report, "answer").all_blocks() if isinstance(b, Statements)]
    links = [item.section for block in told for item in block.items]
    assert links
    assert set(links) <= ids


def test_what_is_open_ends_the_answer_with_its_command(tmp_path: Path) -> None:
    report = report_of(rich_data(tmp_path / "run", study=rich_study(seeds=1)))
    last = section_of(report, "answer").sections[-1]
    assert last.id == "open"
    (told,) = last.blocks
    assert isinstance(told, Statements)
    assert told.items[0].command == "trainlab run --seeds 3"
    assert "one seed cannot show a difference" in told.items[0].text


def some_unfinished(trial: Trial) -> str:
    states = {2: "failed", 3: "interrupted", 4: "pending", 5: "diverged"}
    return states.get(trial.seed, "done") if trial.kind == "learn" else "done"


def test_an_unfinished_run_says_so_at_the_top_and_its_trials_appear_as_what_they_are(
    tmp_path: Path,
) -> None:
    report = rich_report(tmp_path / "run", state=some_unfinished)
    told = [notice.text for notice in report.notices if notice.tone == "failure"]
    for text, word in zip(told, ("not finished", "failed", "Interrupted"), strict=True):
        assert word in text
    trouble = section_of(report, "trouble").blocks[0]
    assert isinstance(trouble, Table)
    states = [row.entries[1].text for row in trouble.rows]
    assert sorted(states) == sorted(3 * ["failed", "interrupted", "not run", "diverged"])
    assert any("RuntimeError: it broke" in row.entries[3].text for row in trouble.rows)


def test_a_subset_is_never_passed_off_as_the_full_set(tmp_path: Path) -> None:
    report = rich_report(tmp_path / "run", data=lambda trial: SUBSET)
    assert any("subset of tiny" in notice.text for notice in report.notices)


def test_every_number_of_the_cost_table_is_the_median_of_the_records(
    rich_folder: RunFolder, reports: Reports
) -> None:
    folder, report = rich_folder, reports["en"]
    table = next(t for t in tables_of(report) if t.caption == "What each setting costs")
    shown = {(row.entries[0].text, row.entries[1].text): row.entries for row in table.rows}
    for size in (1, 16, 64):
        for mode, word in (("train", "training"), ("inference", "inference")):
            names = [f"cost-{mode}-batch_size={size}-process{number}" for number in (1, 2, 3)]
            files = [folder.trials_folder / name / "cost.json" for name in names]
            steps = [statistics.median(json.loads(one.read_text())["step_ms"]) for one in files]
            entries = shown[f"batch_size={size}", word]
            step = statistics.geometric_mean(steps)
            assert entries[3].value == pytest.approx(step, rel=1e-3)
            assert entries[3].text == figure(entries[3].value or 0)
            assert entries[4].value == pytest.approx(1e3 * step / size, rel=1e-3)


def test_every_number_of_the_learn_table_is_the_mean_of_the_records(
    rich_folder: RunFolder, reports: Reports
) -> None:
    folder, report = rich_folder, reports["en"]
    table = next(t for t in tables_of(report) if t.caption == "What each setting learned")
    for row in table.rows:
        values = [
            trial.final["test/accuracy"]
            for trial in folder.trials()
            if trial.kind == "learn" and trial.cell == row.cell
        ]
        mean = mean_of([value for value in values if value is not None])
        assert mean is not None
        assert mean.interval is not None
        assert row.entries[2].value == pytest.approx(mean.value)
        assert row.entries[2].text.startswith(metric_value("test/accuracy", mean.value))


def test_every_number_of_a_finding_is_in_its_sentence_as_the_records_have_it(
    rich_folder: RunFolder,
) -> None:
    folder, data = rich_folder, run_data(rich_folder)
    trials = {trial.id: trial for trial in folder.trials()}
    told = [finding.sentence(Words("en")) for finding in data.findings]
    for size in (16, 64):
        means = [
            statistics.fmean(
                trials[f"learn-batch_size={one}-seed{seed}"].final["test/accuracy"] or 0
                for seed in range(1, 9)
            )
            for one in (1, size)
        ]
        arrow = " → ".join(f"{100 * mean:.2f}%" for mean in means)
        assert any(f"batch_size 1 → {size}: test accuracy {arrow}" in text for text in told)
        peaks = [
            folder.trial(f"cost-train-batch_size={one}-layers").memory.read().peak_bytes / 2**20
            for one in (1, size)
        ]
        arrow = " → ".join(figure(peak) for peak in peaks)
        assert any(f"1 → {size}: a training step needs {arrow} MiB" in text for text in told)


def test_operator_tables_hold_all_operators_and_show_ten(reports: Reports) -> None:
    found = [t for t in tables_of(reports["en"]) if t.caption.startswith("Top operators")]
    assert len(found) == 6
    for table in found:
        assert len(table.rows) == 14
        assert len(table.shown) == 10
        shares = [row.entries[1].value or 0.0 for row in table.rows]
        assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(
    "asked",
    [
        {"vary": {"batch_size": [1, 16], "lr": [0.1, 1e-5]}},
        {"vary": {"lr": [0.1, 0.01]}, "design": "one-at-a-time"},
        {"vary": {"lr": [0.1]}, "cells": ({"optimizer": "sgd", "hidden": 3},), "design": "grid"},
        {"probes": (probe_of("relu,fc1:grad_input:sq_sum"), probe_of("*:activation:histogram@9"))},
        {"title": 'a "quoted"\nline \\ and é 图', "targets": {"test/accuracy": 0.5}},
    ],
)
def test_the_study_file_asks_for_the_same_cells(tmp_path: Path, asked: dict[str, object]) -> None:
    study = made_study(**asked)
    path = tmp_path / "study.toml"
    path.write_text(study_file(study), encoding="utf-8")
    question = read_question(path)
    again = [cell.settings for cell in layout_of(question, {}, ("hidden",))[0]]
    # A list beside a grid begins with what all its cells share; a level is all a grid can write out.
    assert all(cell.settings in again for cell in study.all_cells)
    assert question.title == study.title
    assert question.targets == study.targets
    assert question.probes == study.probes


@pytest.mark.slow
def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    folder = rich_run(tmp_path / "run", study=rich_study(seeds=1))
    script = (
        "import sys; from pathlib import Path\n"
        "from trainlab.lab import open_run\n"
        "from trainlab.report.writing import write_report\n"
        "run = open_run(Path(sys.argv[1]))\n"
        "write_report(run.evidence(), run.report_folder, ('html', 'md', 'pdf'))\n"
        "assert 'torch' not in sys.modules\n"
    )
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    pytest.importorskip("typst", reason="needs trainlab[report]")
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder.path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_command_is_told_without_where_trainlab_is_installed() -> None:
    for program in ("/opt/venv/bin/trainlab", "src/trainlab/__main__.py"):
        assert typed_command(f"{program} run mnist-lab") == "trainlab run mnist-lab"
    assert typed_command("python my_script.py") == "python my_script.py"


def test_a_long_name_breaks_after_its_parts_and_never_within_a_number() -> None:
    assert Entry("batch_size=16,lr=0.001").parts == ["batch_", "size=16,", "lr=0.001"]
    assert Entry("encoder.layers.0.out_proj").parts == ["encoder.", "layers.0.", "out_", "proj"]
    assert Entry("batch_size=16").parts == ["batch_size=16"]


def test_a_sentence_that_says_no_more_than_its_row_is_left_out(
    rich_folder: RunFolder, reports: Reports
) -> None:
    data, report = run_data(rich_folder), reports["en"]
    told = {p.text for b in report.all_blocks() if isinstance(b, Bullets) for p in b.items}
    rows = [one for one in data.findings if one.kind in ("effect", "no_reset", "cost", "memory")]
    assert {one.of_kind.repeats_row(one) for one in rows} == {True}
    assert not told & {one.sentence(Words("en")) for one in rows}
    (table,) = (t for t in tables_of(report) if t.caption.startswith("Levels of batch size"))
    assert len(table.rows) == len(rows)


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


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_cuts_nothing_off_a_table(reports: Reports, width: int) -> None:
    console, words = Console(file=io.StringIO(), width=width), Words("zh")
    tables = tables_of(reports["zh"])
    assert len(tables) > 8
    for table in tables:
        console.file = io.StringIO()
        print_blocks(console, [table], words)
        lines = console.file.getvalue().splitlines()
        assert max(map(cell_len, lines)) <= width
        shown = "".join("".join(lines).split())
        columns = [n for n, c in enumerate(table.columns) if width >= 100 or not c.is_extra]
        for row in table.shown:
            for number in columns[1:]:
                entry = "".join(row.entries[number].text.split())
                if table.columns[number].is_number:
                    assert entry in shown, (table.caption, entry)


def test_a_grid_of_two_factors_is_drawn_as_a_heat_map(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 16), "lr": (0.1, 0.01, 0.001)}, seeds=2)
    report = report_of(run_data(Fabricated().write(tmp_path / "a", study)))
    (grid,) = (one for one in report.figures() if one.id == "grid-test-accuracy")
    assert len(grid.spec["data"]["values"]) == 6
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
