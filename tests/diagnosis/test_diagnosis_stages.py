"""Which bench follows from what, what is told meanwhile, and how time ends it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from diagnosed_runs import measure, watched_only
from trainlab.lab import script_study
from trainlab.lab.driving import Outcome
from trainlab.lab.run_progress import Watcher
from trainlab.lab.script_study import DiagnosisStage
from trainlab.words import Words
from watched_runs import watched

BASE = ["base", "base"]


class Listening(Watcher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, sentence: Callable[[Words], str]) -> None:
        self.lines.append(sentence(Words("en")))


def test_what_promises_most_is_tried_first_and_remedies_once_their_limit_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_study, "usable_vcpus", lambda: 2)
    run, heard = watched_only(tmp_path / "run", ("data", "threads=2")), Listening()
    run.trial("learn-seed1").watched.write(watched(evaluation_s=0.0))
    stage = DiagnosisStage(run.study().to_study(""), watcher=heard)
    benches = []
    while groups := stage.groups(run):
        benches.append(sorted(measure(run, groups)))
    both = [*BASE, "change=same_batch", "change=threads=2"]
    assert benches == [both, both, *[[*BASE, "change=workers=2"]] * 2]
    suspected, *tries = heard.lines
    assert suspected == "It looks like waiting for data (up to 10.0% of the time). Now it is tried."
    assert tries == [
        *["Trying, against the script as it is: same_batch, threads=2"] * 2,
        "Confirmed: waiting for data. With the same batch again in place of the loader's next it is"
        " 5.00 times as fast (95% CI 5.00 to 5.00).",
        "Refuted: threads; it saves too little. With threads set to 2 it is 0.83 "
        "times as fast (95% CI 0.83 to 0.83).",
        *["Trying, against the script as it is: workers=2"] * 2,
        "What helps against waiting for data is confirmed, too. With num_workers=2 it is"
        " 2.00 times as fast (95% CI 2.00 to 2.00).",
    ]


def test_a_diagnosis_whose_time_is_up_is_an_answer_of_what_is_decided(tmp_path: Path) -> None:
    run = watched_only(tmp_path / "run")
    stage = DiagnosisStage(run.study().to_study(""), budget_s=0.1)
    assert stage.groups(run) == ()
    record = stage.written(Outcome(run, was_interrupted=False))
    assert record is not None
    reasons = {row.limit: row.tried[0].reason for row in record.limits}
    assert reasons == {"data": "no_time", "threads": "no_time", "evaluation": "no_statement"}


def test_a_bench_is_begun_only_where_it_should_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script of this record starts in two seconds."""
    monkeypatch.setattr(script_study, "usable_vcpus", lambda: 2)
    for budget_s, num_cells in ((8.0, 0), (15.0, 3), (30.0, 4)):
        run = watched_only(tmp_path / f"run-{budget_s:.0f}")
        groups = DiagnosisStage(run.study().to_study(""), budget_s=budget_s).groups(run)
        assert len(groups) == num_cells
