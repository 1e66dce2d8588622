"""The records of one trial, read and checked together: one that is damaged leaves the others readable."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from trainlab.analysis.probes import ProbedTrial
from trainlab.errors import RecordError
from trainlab.record.cost_record import (
    CostRecord,
    LayersRecord,
    LimitsRecord,
    MemoryRecord,
    NetworkRecord,
    OperatorsRecord,
    ProbeCostRecord,
)
from trainlab.record.learning_record import ConfusionRecord
from trainlab.record.run_folder import CHANGED, RecordFile, TrialFolder
from trainlab.record.schema import Record, first_problem
from trainlab.record.script_record import WatchedRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of

UNFINISHED = ("pending", "running")
SHOWN_SETTINGS = (
    *("epochs", "batch_size", "optimizer", "lr", "precision", "device", "zero_grad", "model"),
)

R = TypeVar("R", bound=Record)
Line = Mapping[str, Any]
"""A line of a curve."""


@dataclass(frozen=True)
class LearnedTrial:
    """One learn trial: its record and its curve."""

    trial: TrialRecord
    epochs: tuple[Line, ...]
    """The curve's lines of kind `epoch`, in order."""
    read_steps: Callable[[], Sequence[Line]] = tuple
    """Reads the lines of kind `step`: there are many, and only reports that draw them need them."""
    read_network: Callable[[], NetworkRecord | None] = lambda: None
    """Reads the calls of its model; None where they were not recorded."""
    read_confusion: Callable[[], ConfusionRecord | None] = lambda: None
    """Reads which classes it took for which; None where that was not recorded."""

    watched: WatchedRecord | None = None
    """What a script was seen to do; None where it was no script, or its process died."""

    def epoch_s(self) -> float | None:
        """The median training time of its epochs; None where none ended."""
        times_s = [float(line["train_s"]) for line in self.epochs]
        return statistics.median(times_s) if times_s else None

    def is_one_pass(self) -> bool:
        """Of a script: whether nothing told what a pass over its data is, so that all it did counts as one;
        its final values of training are means over the last updates."""
        is_untold = self.watched is not None and "passes" not in self.trial.resolved
        return is_untold and self.trial.epochs_done <= 1

    def value(self, metric: str) -> float:
        """A metric of the last epoch; NaN where the trial diverged or did not finish."""
        final = self.trial.final.get(metric)
        return math.nan if final is None or self.trial.state != "done" else float(final)


@dataclass(frozen=True)
class TrialRecords:
    """A trial and all that was recorded of it; None for what was not."""

    trial: TrialRecord
    learned: LearnedTrial | None = None
    """Of a learn trial, ended or not."""
    probed: ProbedTrial | None = None
    cost: CostRecord | None = None
    """This and the next: of a cost trial that is done."""
    operators: OperatorsRecord | None = None
    layers: LayersRecord | None = None
    memory: MemoryRecord | None = None
    limits: LimitsRecord | None = None
    probe_price: ProbeCostRecord | None = None


def read_trial(files: TrialFolder, *, of_script: bool = False) -> TrialRecords:
    """All records of a trial; RecordError names the first that is missing or damaged."""
    trial = files.read()
    if trial.id != files.path.name:
        raise RecordError(
            f"{files.trial_file}: id: got {trial.id!r}, must be its folder's name; {CHANGED}"
        )
    _check_settings(files, trial)
    if of_script:
        trial = _of_script(trial)
    files.check_files(trial)
    probed = probed_trial(files, trial)
    if trial.kind == "learn":
        return TrialRecords(trial, learned=_learned(files, trial), probed=probed)
    if trial.state != "done":
        return TrialRecords(trial, probed=probed)
    return TrialRecords(
        trial,
        probed=probed,
        cost=files.cost.read() if trial.watch == "steps" else None,
        operators=_read(files.operators),
        layers=_read(files.layers),
        memory=_read(files.memory),
        limits=_read(files.limits),
        probe_price=_read(files.probe_price),
    )


OF_SCRIPTS = tuple(
    name for name in TrainSpec.model_fields if setting_of(TrainSpec, name).is_of_scripts
)


def _of_script(trial: TrialRecord) -> TrialRecord:
    """With the settings alone that a script is given: it chooses the others itself, and what they were seen
    to be is in `resolved`."""
    given = {name: trial.settings[name] for name in OF_SCRIPTS if trial.settings.get(name)}
    if trial.settings.get("threads") is not None:
        given["threads"] = trial.settings["threads"]
    return trial.model_copy(update={"settings": given})


def _check_settings(files: TrialFolder, trial: TrialRecord) -> None:
    """RecordError where settings that tables show are missing, or hold what no setting can."""
    if lacking := [name for name in SHOWN_SETTINGS if name not in trial.settings]:
        raise RecordError(f"{files.trial_file}: settings: has no {lacking[0]}; {CHANGED}")
    try:
        # Strict, and as JSON, which has no tuples: they are used as they are.
        TrainSpec.model_validate_json(json.dumps(trial.settings), extra="ignore", strict=True)
    except ValidationError as error:
        raise RecordError(
            f"{files.trial_file}: settings: {first_problem(error)}; {CHANGED}"
        ) from None


def probed_trial(files: TrialFolder, trial: TrialRecord) -> ProbedTrial | None:
    """The values of its probes; None where it has none."""
    if not files.probes_file.exists():
        return None
    fired = _read(files.probes)
    return ProbedTrial(
        trial, tuple(files.probe_lines()), () if fired is None else tuple(fired.rows)
    )


def _learned(files: TrialFolder, trial: TrialRecord) -> LearnedTrial:
    if not trial.files:
        # No digest vouches for what is read later.
        files.curve()
        _read(files.network)
        _read(files.confusion)
    return LearnedTrial(
        trial,
        epochs=tuple(files.epochs()),
        read_steps=lambda: [line for line in files.curve() if line["kind"] == "step"],
        read_network=lambda: _read(files.network),
        read_confusion=lambda: _read(files.confusion),
        watched=_read(files.watched),
    )


def _read(file: RecordFile[R]) -> R | None:
    return file.read() if file.exists() else None
