"""Trials set up and trained by hand, without a run around them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainlab.instruments.probe_instrument import Probes
from trainlab.plan import Trial
from trainlab.record.learning_record import ProbeRecord
from trainlab.record.run_folder import TrialFolder
from trainlab.spec.probe import probe_of
from trainlab.train.callbacks import Instrument, Moments, Progress
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Member
from trainlab.train.loop import train as train_group
from trainlab.train.metering import Means
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup, set_up
from trainlab.workloads.workload import Workload


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
