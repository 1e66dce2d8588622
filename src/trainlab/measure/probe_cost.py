"""What probes cost: the same training step with them and without, in turns, in a watched process."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainlab.instruments.probes.instrument import Probes
from trainlab.measure.stopwatch import timed_ms
from trainlab.measure.timing import Run, stepping
from trainlab.record.cost import ProbePriceRecord
from trainlab.record.folder import TrialFolder
from trainlab.spec.cost import CostSpec
from trainlab.spec.probe import ProbeSpec
from trainlab.train.moments import Moments, Point, Progress
from trainlab.train.setup import Bench
from trainlab.train.step import make_step


def price_probes(bench: Bench, spec: CostSpec, probes: Sequence[ProbeSpec]) -> ProbePriceRecord:
    """Warms up, then `active_steps` probed steps in turns with as many bare ones."""
    bare_ms, watched_ms = [], []
    home = bench.folder
    with TemporaryDirectory() as folder, stepping(bench, "train") as steps:
        # Elsewhere: what the probes see here is not the study's.
        bench.folder = TrialFolder(Path(folder))
        try:
            probed, moments = probed_step(bench, probes)
            for _ in range(spec.warmup_steps):
                steps.bare(next(steps.endless))
                probed(next(steps.endless))
            for _ in range(spec.active_steps):
                bare_ms.append(timed_ms(bench.device, partial(steps.bare, next(steps.endless))))
                watched_ms.append(timed_ms(bench.device, partial(probed, next(steps.endless))))
            moments.trial_ends(Progress())
        finally:
            bench.folder = home
    return ProbePriceRecord(
        probes=[str(probe) for probe in probes], bare_ms=bare_ms, watched_ms=watched_ms
    )


def probed_step(bench: Bench, probes: Sequence[ProbeSpec]) -> tuple[Run, Moments]:
    """A step with probes, told of its moments as the loop does."""
    moments, every = Moments([Probes(probes)]), bench.log_every_steps
    moments.trial_begins(bench)
    moments.epoch_begins(1)
    step, number = make_step(bench, moments), 0

    def run(rows: Any) -> None:
        nonlocal number
        number += 1
        moments.step_begins(number)
        step(rows)
        moments.step_ends(number)
        if number % every == 0:
            moments.point_logged(Point("step", 1, number, number, {}, {}))

    return run, moments
