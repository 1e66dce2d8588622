"""The training loop, as an instrument sees it:

    trial_begins(view)                           model, data and optimizer stand ready
    for each epoch:
        epoch_begins(epoch)
        for each batch of the shuffled training set:
            step_begins(step)
            take the batch's rows                phase_ends("data")
            move them to the device              phase_ends("transfer")
            scale the pixels                     phase_ends("prepare")
            batch_ready(inputs, targets)
            reset the gradients                  phase_ends("zero_grad")
            forward_begins()
            run the model                        phase_ends("forward")
            compute the loss                     phase_ends("loss")
            differentiate                        phase_ends("backward")
            hooks of the optimizer, if any       update_begins(), gradients_ready()
            update the weights                   phase_ends("optimizer")
            step_ends(step)
            every few steps: point_logged(point) means since the last point
        test_begins(epoch)                       the model is about to run in eval mode
        run the whole test set
        run the whole validation set, where there is one
        test_ends(epoch)
        epoch_ends(point)                        means over the epoch and over the test set
        change the learning rate
        stop here, where the validation loss has not been lower for long enough
        every so often, here or after a point: flush(), then a checkpoint is made
    trial_ends(progress)                         done, diverged, interrupted or failed

An engine makes the steps. Instruments watch; the losses are the same with all of them and with none.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from trainlab.data.dataset import Split
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Point
from trainlab.train.checkpoints import Checkpoints, Place
from trainlab.train.engines.engine import Member, Session, State
from trainlab.train.metering import Means

SAMPLES_OF = "/samples of "
"""Before a name, among the totals of an epoch: the samples of the steps that logged it. No metric is called
so."""
Clock = Callable[[], float]
Totals = list[dict[str, float]]


class LoopClock:
    """Time spent on training, of which each member of a group counts a share."""

    def __init__(self, clock: Clock, share: float, before_s: float = 0.0) -> None:
        """`before_s` was spent by an earlier attempt."""
        self._clock, self._share = clock, share
        self._start_s, self._before_s = clock(), before_s

    def read(self) -> float:
        return self._before_s + self._share * (self._clock() - self._start_s)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """What happens in this block is not training."""
        begun_s = self._clock()
        yield
        self._start_s += self._clock() - begun_s


def train(
    session: Session,
    group: Sequence[Member],
    clock: Clock = time.perf_counter,
    saved: Checkpoints | None = None,
) -> None:
    """Trains a group until every member is done or has diverged: its loss is not finite, or has exploded
    (`meter.EXPLODED`). Each member's progress is up to date at any time. Goes on from what is `saved` of
    the group, and saves it again now and then."""
    place, resumed = (Place(), None) if saved is None else saved.restored(session)
    for epoch in range(place.epoch, group[0].setup.num_epochs + 1):
        for member in _running(group):
            member.moments.epoch_begins(epoch)
        train_means = _train_epoch(session, group, place, clock, saved, resumed)
        if _running(group):
            _test_epoch(session, group, place, clock, train_means)
        if not _running(group):
            break
        session.change_learning_rates()
        place, resumed = Place(epoch + 1), None
        if saved is not None:
            saved.save_if_due(session, place)
    for member in _running(group):
        member.progress.state = "done"
    session.settle()


def _running(group: Sequence[Member]) -> list[Member]:
    return [member for member in group if member.progress.state == "running"]


def _test_epoch(
    session: Session, group: Sequence[Member], place: Place, clock: Clock, train_means: Totals
) -> None:
    """Test and records of an epoch; the times wait until the device is done."""
    epoch = place.epoch
    for member in _running(group):
        member.moments.test_begins(epoch)
    start = clock()
    test_means, val_means = session.test(epoch), session.validate(epoch)
    test_s = (clock() - start) / len(group)
    rates = session.learning_rates()
    of_members = zip(group, train_means, test_means, val_means, rates, strict=True)
    for member, trained, tested, validated, rate in of_members:
        progress = member.progress
        if progress.state != "running":
            continue
        member.moments.test_ends(epoch)
        progress.total_s += test_s
        progress.epochs_done = epoch
        metrics = _named("train", trained) | _named("test", tested.values)
        metrics |= ({} if validated is None else _named("val", validated.values)) | {"lr": rate}
        is_best = validated is not None and _is_best(progress, epoch, validated.values["loss"])
        keeps_best = member.setup.settings.keep_best
        if is_best or not keeps_best:
            progress.final = metrics
        if is_best and keeps_best:
            session.keep()
        times_s = {"train_s": place.train_s, "test_s": test_s, "time_s": progress.total_s}
        member.moments.epoch_ends(_point("epoch", member, epoch, metrics, times_s))
        _stop_if_in_vain(member, epoch, metrics)


def _is_best(progress: Progress, epoch: int, val_loss: float) -> bool:
    """Whether the validation loss is lower than ever; then it is remembered. The first epoch is, until
    one comes whose loss is finite."""
    best, is_finite = progress.best_val_loss, math.isfinite(val_loss)
    is_lowest = is_finite and (best is None or val_loss < best)
    if is_lowest or progress.best_epoch == 0:
        progress.best_epoch, progress.best_val_loss = epoch, val_loss if is_finite else None
        return True
    return False


def _stop_if_in_vain(member: Member, epoch: int, metrics: Mapping[str, float]) -> None:
    """Ends a trial that has waited for a lower validation loss as long as it may, or, of a search, that is
    worse than it may be."""
    setup, progress = member.setup, member.progress
    patience, bars = setup.settings.patience, setup.trial.bars
    if progress.state != "running" or epoch >= setup.num_epochs:
        return
    if bars is not None and bars.stops(epoch, metrics.get(bars.metric, math.nan)):
        progress.state = "done"
        setup.note_once(
            "search_stopped", epoch=epoch, metric=bars.metric, bar=bars.values[epoch - 1]
        )
    elif patience is not None and epoch - progress.best_epoch >= patience:
        progress.state = "done"
        setup.note_once("stopped_early", epoch=epoch, best=progress.best_epoch)


def _train_epoch(
    session: Session,
    group: Sequence[Member],
    place: Place,
    clock: Clock,
    saved: Checkpoints | None,
    resumed: State | None,
) -> Totals:
    """All updates of one epoch that are left; each member's sample-weighted means over it. Of trials that
    run together each counts its share of the time: shares add up to what the clock shows."""
    epoch, setup, begun = place.epoch, group[0].setup, _running(group)
    totals = place.totals = place.totals or [{} for _ in group]
    watch = LoopClock(clock, 1 / len(group), place.train_s)
    before_s = begun[0].progress.total_s - place.train_s
    left = setup.num_steps - (epoch - 1) * len(setup.train_batches)
    in_epoch = min(len(setup.train_batches), left)
    with session.training(epoch, resumed):
        # From one point of the curve to the next; the last is the epoch's end.
        while place.steps < in_epoch and _running(group):
            num_steps = min(setup.log_every_steps, in_epoch - place.steps)
            step_means = session.advance(num_steps)
            place.steps, place.train_s = place.steps + num_steps, watch.read()
            rates, now_s = session.learning_rates(), before_s + place.train_s
            for member, means, rate, total in zip(group, step_means, rates, totals, strict=True):
                if member.progress.state == "running":
                    member.progress.total_s = now_s
                    _log(member, means, {"lr": rate}, total, epoch)
            if saved is not None and place.steps < in_epoch and _running(group):
                with watch.stopped():
                    saved.save_if_due(session, place)
    place.train_s = watch.read()
    for member in begun:
        member.progress.total_s = before_s + place.train_s
    return [
        {n: v / total[SAMPLES_OF + n] for n, v in total.items() if not n.startswith(SAMPLES_OF)}
        for total in totals
    ]


def _log(
    member: Member, means: Means, rate: dict[str, float], total: dict[str, float], epoch: int
) -> None:
    """A point of a member, which is added to the totals of the epoch: a value counts for the samples of the
    steps that logged it. Notes where it has diverged."""
    setup, progress = member.setup, member.progress
    for name, value in means.values.items():
        num_samples = means.samples_of.get(name, means.num_samples)
        total[SAMPLES_OF + name] = total.get(SAMPLES_OF + name, 0) + num_samples
        total[name] = total.get(name, 0.0) + value * num_samples
    metrics = _named("train", means.values) | rate
    point = _point("step", member, epoch, metrics, {"time_s": progress.total_s})
    member.moments.point_logged(point)
    if means.first_bad_step is not None:
        progress.state, progress.diverged_loss = "diverged", means.bad_loss
        progress.diverged_at_step = progress.steps_done - means.num_steps + means.first_bad_step
        # Where the data itself is not finite, a smaller learning rate would be looked for in vain.
        split = setup.dataset.train
        if isinstance(split, Split) and (count := split.num_not_finite):
            setup.note_once("data_not_finite", count=count, all=len(split))


def _named(part: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{part}/{name}": value for name, value in values.items()}


def _point(
    kind: Literal["step", "epoch"],
    member: Member,
    epoch: int,
    metrics: dict[str, float],
    times_s: dict[str, float],
) -> Point:
    steps = member.progress.steps_done
    samples = member.setup.train_batches.samples_by(steps)
    return Point(kind, epoch, steps, samples, metrics, times_s)
