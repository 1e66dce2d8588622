"""Trials set up and trained by hand, without a run around them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainlab.instruments.probe_instrument import Probes
from trainlab.plan import Trial
from trainlab.record.learning_record import ProbeRecord
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import Progress
from trainlab.spec import TrainSpec
from trainlab.spec.probe import probe_of
from trainlab.train.callbacks import Instrument, Moments, Point
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Member
from trainlab.train.loop import train as train_group
from trainlab.train.metering import Means
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup, set_up
from trainlab.workloads.workload import Workload

ON_A_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@dataclass(frozen=True, kw_only=True)
class HomedSetup(Setup):
    """A set-up with a folder for what instruments write."""

    folder: TrialFolder


MakeSetup = Callable[..., HomedSetup]


def homed(trial: Trial, workload: Workload, folder: TrialFolder) -> HomedSetup:
    """A trial's set-up with freshly loaded data."""
    with seeded(0, "data"):
        dataset = workload.dataset(trial.settings.data)
    return HomedSetup(**vars(set_up(trial, workload, dataset)), folder=folder)


class Curve(Instrument):
    """Keeps every point."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.epochs: list[Point] = []

    def point_logged(self, point: Point) -> None:
        self.points.append(point)

    def epoch_ends(self, point: Point) -> None:
        self.epochs.append(point)

    @property
    def losses(self) -> list[float]:
        return [point.metrics["train/loss"] for point in self.points]


def curve_of(
    workload: Workload, path: Path, engine: str = "eager", **settings: Any
) -> tuple[Curve, Progress, nn.Module]:
    """Trains on the CPU with seed 3, by SGD where nothing else is asked for; a point for every update."""
    given = {"device": "cpu", "log_every_steps": 1, "epochs": 2, "batch_size": 8, "lr": 0.05}
    spec = TrainSpec(**{"optimizer": "sgd", **given, **settings})
    trial = Trial(id="own", workload="own", seed=3, settings=spec)
    curve, progress, setup = Curve(), Progress(), homed(trial, workload, TrialFolder(path))
    train(setup, Moments([curve]), progress, engine=engine)
    return curve, progress, setup.model


def train(
    setup: HomedSetup,
    moments: Moments,
    progress: Progress,
    clock: Callable[[], float] = time.perf_counter,
    engine: str = "eager",
) -> None:
    """One trial, by an engine."""
    member = Member(setup, moments, progress)
    session = ENGINES[engine].open([member])
    moments.trial_begins(setup.view(setup.folder))
    train_group(session, [member], clock)


def probed(
    setup: HomedSetup, *probes: str, beside: Sequence[Instrument] = ()
) -> tuple[list[ProbeRecord], Progress]:
    """Trains with these probes; their lines, and how the training went."""
    watching = [Probes([probe_of(text) for text in probes])] if probes else []
    moments, progress = Moments([*watching, *beside]), Progress()
    try:
        train(setup, moments, progress)
    finally:
        moments.trial_ends(progress)
    return setup.folder.probe_lines(), progress


def run_test_set(setup: HomedSetup) -> Sequence[Means]:
    """The means over the test set."""
    member = Member(setup, Moments([]), Progress())
    return ENGINES["eager"].open([member]).test(1)
