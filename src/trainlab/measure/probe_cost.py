"""What probes cost: the same training step with them and without, in turns, in a watched process."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from trainlab.instruments.probes.instrument import Probes
from trainlab.measure.steps import Steps, stepping
from trainlab.measure.stopwatch import timed_ms
from trainlab.record.cost_record import ProbeCostRecord
from trainlab.record.files import temporary_folder
from trainlab.record.run_folder import TrialFolder
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.study import CostSpec
from trainlab.train.callbacks import Point, Progress
from trainlab.train.engines.engine import Update
from trainlab.train.setup import Setup


def measure_probes(setup: Setup, spec: CostSpec, probes: Sequence[ProbeSpec]) -> ProbeCostRecord:
    """Warms up, then `active_steps` probed steps in turns with as many bare ones."""
    bare_ms, watched_ms = [], []
    with temporary_folder() as folder, stepping(setup, "train") as steps:
        # What the probes see here is not the study's: it is written elsewhere and forgotten.
        probed, instrument = probed_step(setup, steps, probes, TrialFolder(folder))
        for _ in range(spec.warmup_steps):
            steps.next_bare()
            probed(next(steps.endless))
        for _ in range(spec.active_steps):
            bare_ms.append(timed_ms(setup.device, steps.next_bare))
            watched_ms.append(timed_ms(setup.device, partial(probed, next(steps.endless))))
        instrument.trial_ends(Progress())
    return ProbeCostRecord(
        probes=[str(probe) for probe in probes], bare_ms=bare_ms, watched_ms=watched_ms
    )


def probed_step(
    setup: Setup, steps: Steps, probes: Sequence[ProbeSpec], folder: TrialFolder
) -> tuple[Update, Probes]:
    """A step with probes, told of its moments as the loop does; and the probes, to be ended."""
    instrument, every = Probes(probes), setup.log_every_steps
    step, number = steps.watched_by([instrument]), 0
    instrument.trial_begins(setup.view(folder))
    instrument.epoch_begins(1)

    def run(rows: Any) -> None:
        nonlocal number
        number += 1
        instrument.step_begins(number)
        step(rows)
        instrument.step_ends(number)
        if number % every == 0:
            instrument.point_logged(Point("step", 1, number, number, {}, {}))

    return run, instrument
