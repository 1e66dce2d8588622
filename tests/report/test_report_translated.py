"""A Chinese report is Chinese: no English sentence is left, and what probes and confounds say is told."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import pytest
from rich_run import rich_run, rich_study, run_data, section_of

from fabricate import DATA, probe_line, write_probes
from trainlab.analysis.document import Document, Figure, Listing
from trainlab.report.contents import report_of
from trainlab.spec.probe import REDUCERS, Quantity
from trainlab.words import LANGUAGES

ENGLISH = re.compile(r"[A-Za-z']{2,},? [a-z']{2,},? [a-z']{2,}")
"""Three words in a row: names of settings, layers and packages are fewer."""
COMMAND = "trainlab run study.toml"
OWN = "reducers.py:top"
PROBES = [f"relu:{quantity}:{OWN}" for quantity in get_args(Quantity)]
PROBES += [f"relu:activation:{reducer}@3" for reducer in REDUCERS if reducer != "histogram"]
PROBES += ["relu:local_grad:sq_sum@epoch", "fc1.weight:weight:norm@epoch"]


def texts_of(value: Any) -> Iterator[str]:
    """Every text a reader may see; listings are code."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Listing):
        yield value.caption
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts_of(getattr(value, field.name))
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_of(one)


@pytest.fixture(scope="module", params=LANGUAGES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Of a run with confounds, probes, trials gone wrong and shaky measurements."""
    states = {7: "diverged", 8: "interrupted"}
    others = {"threads": 2, "shuffle": None}
    subset = DATA.model_copy(update={"num_train": 96, "is_subset": True})
    folder = rich_run(
        tmp_path_factory.mktemp("told") / "run",
        study=rich_study(title=""),
        data=lambda trial: subset if trial.settings.batch_size == 64 else DATA,
        resolved=lambda trial: others if trial.settings.batch_size == 64 else {},
        state=lambda trial: states.get(trial.seed, "done") if trial.kind == "learn" else "done",
        step_ms=lambda trial, process: 1.0 + process,
    )
    lines = [probe_line(probe, "relu", period, 0.5) for probe in PROBES for period in (1, 2)]
    for trial in folder.trials():
        if trial.kind == "learn":
            write_probes(folder.trial(trial.id), lines)
    return report_of(run_data(folder), request.param)


def test_no_english_sentence_is_left_in_a_chinese_report(report: Document) -> None:
    told = {text for text in texts_of(report) if ENGLISH.search(text.replace(COMMAND, ""))}
    if report.lang == "en":
        assert len(told) > 100, "the check finds nothing where all is English"
    else:
        assert not told


def test_metrics_and_parts_are_called_what_people_call_them(report: Document) -> None:
    texts = set(texts_of(report))
    assert {text for text in texts if re.search(r"\b(train|test)/[a-z]", text)} == set()
    alts = [figure.alt for figure in report.figures() if figure.id.startswith("operators")]
    assert alts
    assert not any("…" in alt for alt in alts)
    if report.lang == "zh":
        assert not any("outside" in alt for alt in alts)
        assert "训练损失随训练轮数的变化" in texts
        assert "批大小的影响" in texts
    else:
        assert {"Training loss over epochs", "Effect of batch size", "test accuracy (%)"} <= texts


def test_confounds_are_told_in_the_language_of_the_report(report: Document) -> None:
    told = " ".join(texts_of(section_of(report, "method")))
    expected = {
        "en": ("threads: 1 against 2", "shuffle: True against not set"),
        "zh": ("线程数 threads：1 与 2", "shuffle：是 与 未设置", "data.is_subset：否 与 是"),
    }
    assert [text for text in expected[report.lang] if text not in told] == []
    # Every chart of a probe says what its values mean.
    section = section_of(report, "probes")
    notes = [block.note for block in section.blocks if isinstance(block, Figure)]
    assert len(notes) == 12
    assert all(note.endswith((".", "。")) and len(note) > 12 for note in notes)
