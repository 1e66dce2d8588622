"""Processes that take turns: one at a time, in rounds, whatever happens to one of them."""

import itertools
import math
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from asking import groups_of, study_of
from children import children
from fabricate import Fabricated, made_study
from trainlab.analysis.answer import answer
from trainlab.analysis.cost import noise_ratio
from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import findings
from trainlab.execute.attempt import EventWriter
from trainlab.execute.bench import run_benches
from trainlab.execute.executors import LocalExecutor, executor_for
from trainlab.execute.planned_run import start_run
from trainlab.execute.retries import Retries
from trainlab.plan import Group, trials_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import EventReader
from trainlab.record.trial_record import Failure, TrialRecord
from trainlab.spec import CostSpec, Study
from trainlab.train.loader import Loader
from trainlab.words import Words

SPEC = CostSpec(
    processes=1, budget_s=0.4, warmup_steps=1, active_steps=2, trace_mb=0, ratio_within=1e-9
)

SPANS = """
import os, time
_loss = tiny.loss
def spanned(outputs, targets):
    began = time.monotonic()
    result = _loss(outputs, targets)
    open({path!r}, "a").write(f"{{os.getpid()}} {{began}} {{time.monotonic()}}\\n")
    return result
import dataclasses
tiny = dataclasses.replace(tiny, loss=spanned)
"""


def started(tiny_file: Path, out: Path, cells: int = 3) -> RunFolder:
    settings = {"device": "cpu", "threads": 1}
    asked = {"vary": {"batch_size": [2, 4, 10, 20][:cells]}, "cost": SPEC, "learn": False}
    return start_run(study_of(f"{tiny_file}:tiny", settings, **asked), out)


def run_timed(
    folder: RunFolder, shares: Callable[[Group], bool] | None = None
) -> list[TrialRecord]:
    """`shares`: which settings stand in one process."""
    groups = [group for group in groups_of(folder) if group.bench is not None]
    with closing(LocalExecutor(Loader(), on="processes", shares_bench=shares)) as executor:
        executor.run(folder, groups, lambda: False)
    return [trial for trial in folder.trials() if trial.watch == "steps"]


@pytest.mark.slow
def test_the_processes_of_a_bench_run_in_rounds_one_at_a_time(
    tiny_file: Path, tmp_path: Path
) -> None:
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + SPANS.format(path=str(tmp_path / "spans")))
    records = [folder.trial(trial.id).cost.read() for trial in run_timed(folder)]
    # Three cells, and the smallest and the largest once more.
    assert len(records) == 5
    assert len({record.bench for record in records} - {""}) == 1
    rounds = [[turn.round for turn in record.turns] for record in records]
    assert all(one == rounds[0] for one in rounds)
    assert rounds[0] == list(range(1, len(rounds[0]) + 1))
    assert len(rounds[0]) >= 5
    spans = [line.split() for line in (tmp_path / "spans").read_text().splitlines()]
    times = [float(number) for _, *span in spans for number in span]
    assert times == sorted(times), "two processes ran at once"
    owners = [pid for pid, *_ in spans]
    assert len(set(owners)) == 5
    assert sum(a != b for a, b in itertools.pairwise(owners)) >= 4 * len(rounds[0])


TOGETHER = """
_trained = tiny.loss
_sizes = set()
def together(outputs, targets):
    _sizes.add(len(targets))
    if len(_sizes) > {most}:
        raise RuntimeError("out of memory")
    return _trained(outputs, targets)
import dataclasses
tiny = dataclasses.replace(tiny, loss=together)
"""


@pytest.mark.slow
def test_settings_of_a_bench_take_turns_in_one_process_and_apart_where_they_do_not_fit(
    tiny_file: Path, tmp_path: Path
) -> None:
    """As on a GPU. One setting stands in a process of its own beside the others."""
    plain = tiny_file.read_text()
    for most, attempts in ((9, 1), (1, 2)):
        tiny_file.write_text(plain + TOGETHER.format(most=most))
        folder = started(tiny_file, tmp_path / f"r{most}")
        trials = run_timed(folder, lambda group: group.settings.batch_size != 4)
        assert {trial.state for trial in trials} == {"done"}
        assert {trial.attempt for trial in trials} == {attempts}
        records = [folder.trial(trial.id).cost.read() for trial in trials]
        assert len(records) == 5
        assert len({record.bench for record in records}) == 1
        rounds = [[turn.round for turn in record.turns] for record in records]
        assert all(one == rounds[0] for one in rounds)
        assert len(rounds[0]) >= 5


class Benches:
    """Stands for processes: each bench takes ten seconds, or less where it must end sooner."""

    def __init__(self, noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.names = 0.0, list[str]()
        draw = random.Random(1)
        of_all = {"step_ms": lambda trial, process: 10 * math.exp(draw.gauss(0, noise))}
        self._records = Fabricated(**of_all)
        self._planned = Fabricated(state=lambda trial: "pending")
        monkeypatch.setattr("trainlab.execute.bench.time", self)

    def monotonic(self) -> float:
        return self.now_s

    def timed(self, path: Path, study: Study, repeats: int = 1) -> RunFolder:
        folder = self._planned.write(path, study)
        environment = folder.trials()[0].environment or "machine"

        def run_bench(groups: Sequence[Group], until_s: float) -> None:
            self.names.append(groups[0].bench or "")
            self.now_s += min(10.0, max(1.0, until_s - self.now_s))
            for trial in (trial for group in groups for trial in group.trials):
                self._records.write_trial(folder.trial(trial.id), trial, environment)

        groups = [group for group in groups_of(folder) if group.bench]
        with closing(EventWriter(folder)) as events:
            run_benches(folder, study, groups, run_bench, lambda: False, events, repeats)
        for trial in trials_of(groups_of(folder)):
            if trial.watch != "steps":
                self._records.write_trial(folder.trial(trial.id), trial, environment)
        return folder


def test_timing_ends_once_every_ratio_is_narrow_enough_or_its_budget_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = CostSpec(processes=3, budget_s=60.0, mode="both")
    study = made_study(vary={"batch_size": (2, 20)}, learn=False, cost=cost)
    for noise, is_known in ((0.001, True), (0.3, False)):
        benches = Benches(noise, monkeypatch)
        folder = benches.timed(tmp_path / f"r{noise}", study)
        assert len(benches.names) == 2 * cost.processes
        assert benches.now_s <= cost.budget_s
        shown = {event.trials: event.metrics for event in EventReader(folder.events_folder).new()}
        assert len(shown) == len(cost.modes)
        for metrics in shown.values():
            assert (metrics["off_by"] <= cost.ratio_within) == is_known
        assert bool(open_ratios(folder)) == (not is_known)
    (text,) = open_ratios(folder)
    assert re.fullmatch(r"Ratios of time .* within [\d.]+%.* 5.0%.*", text)


def test_further_benches_run_while_a_ratio_is_wide_and_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = CostSpec(processes=3, budget_s=75.0)
    study = made_study(vary={"batch_size": (2, 20)}, learn=False, cost=cost)
    for name, noise, repeats, num_benches in (
        ("narrow", 0.001, 1, 3),
        ("wide", 0.3, 1, 7),
        ("together", 0.001, 2, 6),
    ):
        benches = Benches(noise, monkeypatch)
        benches.timed(tmp_path / name, study, repeats)
        assert benches.names == [f"train-{number}" for number in range(1, num_benches + 1)], name


def open_ratios(folder: RunFolder) -> list[str]:
    evidence = gather(folder)
    points = answer(evidence, findings(evidence), Words("en")).open_points
    return [one.text for one in points if "Ratios of time" in one.text]


@pytest.mark.slow
def test_a_bench_of_which_processes_are_killed_is_measured_once_more(
    tiny_file: Path, tmp_path: Path
) -> None:
    """One is killed by chance, another one always, and one fails in the middle of its turns."""
    dying = f"""
import os, pathlib, dataclasses
_plain, _mark, _calls = tiny.loss, pathlib.Path({str(tmp_path / "mark")!r}), []
def dies(outputs, targets):
    _calls.append(1)
    if len(targets) == 10 or (len(targets) == 4 and not _mark.exists()):
        _mark.touch()
        os.kill(os.getpid(), 9)
    if len(targets) == 20 and len(_calls) > 60:
        raise RuntimeError("worn out")
    return _plain(outputs, targets)
tiny = dataclasses.replace(tiny, loss=dies)
"""
    folder = started(tiny_file, tmp_path / "r", cells=4)
    tiny_file.write_text(tiny_file.read_text() + dying)
    trials = run_timed(folder)
    assert {trial.attempt for trial in trials} == {2}
    errors = {trial.cell: trial.error.message for trial in trials if trial.error is not None}
    killed = "its process was ended by SIGKILL"
    assert errors == {"batch_size=10": killed, "batch_size=20": "worn out"}
    done = [trial for trial in trials if trial.state == "done"]
    assert {trial.cell for trial in done} == {"batch_size=2", "batch_size=4"}
    costs = [folder.trial(trial.id).cost.read() for trial in done]
    assert len({cost.bench for cost in costs}) == 1
    assert min(len(cost.turns) for cost in costs) >= 5, "the others went on"
    told = {trial.cell for trial in done if "tried_again" in [one.code for one in trial.notes]}
    assert told == {"batch_size=4"}


def test_an_interrupted_process_leaves_interrupted_trials_and_is_gone(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that does not answer the interrupt and has to be killed."""
    deaf = "\nimport os, signal, time\nif os.environ.get('DEAF'):\n"
    deaf += "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\n"
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + deaf)
    monkeypatch.setenv("DEAF", "1")
    monkeypatch.setattr("trainlab.execute.launch.INTERRUPTED_S", 0.5)
    before = set(children())

    def interrupt() -> None:
        first = folder.trial(folder.trials()[0].id)
        while first.read().state != "running":
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # The tests themselves may have been started with the signal ignored (in the background).
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        executor = executor_for("processes", Loader())
        with pytest.raises(KeyboardInterrupt), closing(executor):
            executor.run(folder, groups_of(folder)[:1], lambda: False)
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert folder.trials()[0].state == "interrupted"
    assert set(children()) == before


def test_what_lacked_memory_on_a_gpu_runs_once_more_alone(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainlab.execute.retries.is_cpu", lambda device: False)
    run = started(tiny_file, tmp_path / "r")
    group, folder = groups_of(run)[0], run.trial(run.study().trials[0])
    error = Failure(kind="OutOfMemory", message="", traceback="")
    folder.end(folder.read().model_copy(update={"state": "failed", "error": error}))
    retries, ended = Retries(run), Mock(unfinished=list)
    assert retries.of_group(group, ended) == [Group(trials=group.trials, is_alone=True)]
    assert retries.of_group(group, ended) == []


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_all_settings_stand_in_one_process_and_their_ratios_are_narrow(
    tmp_path: Path,
) -> None:
    settings = {"device": "cuda", "data": "bundled"}
    cost = CostSpec(mode="both", ratio_within=0.02, budget_s=300.0)
    asked = {"vary": {"batch_size": [1, 16, 64]}, "cost": cost, "learn": False}
    folder = start_run(study_of("mnist-cnn", settings, **asked), tmp_path / "r")
    groups = [group for group in groups_of(folder) if group.bench is not None]
    with closing(executor_for("processes", Loader())) as executor:
        executor.run(folder, groups, lambda: False)
    evidence = gather(folder)
    assert {trial.attempt for trial in evidence.trials if trial.watch == "steps"} == {1}
    for mode in cost.modes:
        measured = [one for one in evidence.measured if one.summary.mode == mode]
        assert min(one.summary.num_processes for one in measured) >= 6
        assert {one.waits_for for one in measured} <= {"host", "gpu"}
        assert (noise_ratio(evidence, mode) or math.inf) < 1.01
    assert not [one for one in findings(evidence) if one.kind == "unstable" and one.num_wide]
