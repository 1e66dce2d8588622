"""WholeWatch: a training watched from its start to its end, with all the records of a learn trial."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import islice, pairwise
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.errors import SpecError
from trainlab.plan import Trial
from trainlab.record.files import LineWriter
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note, Record, note
from trainlab.record.script_record import LoaderRow, OptimizerRow, WatchedRecord
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import Progress
from trainlab.watching import own_metrics as told
from trainlab.watching.followed_model import FollowedModel
from trainlab.watching.hooks import Hooks
from trainlab.watching.own_metrics import CsvColumns, OwnScalars, search_output
from trainlab.watching.script_curve import ScriptCurve, kept_between, parts_ms
from trainlab.watching.timeline import PARTS
from trainlab.watching.tracer import Tracer

PROGRESS_EVERY_S = 0.3
MOST_LOSSES = 20_000
ROUNDS, STEPS = 15, 6
"""In which watching is measured, and steps of each."""


class WholeWatch:
    """What the process does from here on, until `close`."""

    def __init__(
        self,
        trial: Trial,
        folder: TrialFolder,
        *,
        on_progress: Callable[[int, Mapping[str, float]], None],
        probes: Sequence[ProbeSpec] = (),
        tensorboard: bool = False,
        metrics: Mapping[str, str] | None = None,
        columns: Mapping[str, tuple[str, str]] | None = None,
        model: nn.Module | None = None,
        start_ns: int | None = None,
        refusal: Callable[[SpecError], BaseException] = lambda error: error,
        rank: int = 0,
        sees_all: bool = False,
    ) -> None:
        """`on_progress` is told of updates, counted from 1, and of the newest values of the metrics, a few
        times a second. `metrics` are patterns of what is printed, `columns` files and columns that are
        written. `model` is the one to look into, by default the first that trains; `refusal` is what is
        raised in the script for probes that cannot be. Of several processes the first, of rank 0, looks
        into the model. Of a long training most steps are only counted, unless `sees_all`."""
        self._folder, self._rank = folder, rank
        self._on_progress, self._told_s = on_progress, -math.inf
        self.on_step: Callable[[int], None] | None = None
        """Is told of every update."""
        lines = LineWriter(folder.curve_of(rank))  # what may fail comes before the hooks
        self.tracer = Tracer(start_ns)
        self._model = FollowedModel(
            self.tracer,
            trial,
            folder,
            () if rank else probes,
            model=model,
            tensorboard=tensorboard and not rank,
            shows_network=not rank,
            before_call=self._look,
            refusal=refusal,
        )
        self._curve = ScriptCurve(self.tracer, lines, self._model.point_written)
        self.tracer.follower, self.tracer.on_step = self._model, self._step_ended
        self._sees_all = sees_all or bool(probes) or bool(columns)
        self.tracer.is_sampled = not self._sees_all
        told.listen(self._curve.metric)
        self._not_found = {
            name: note("metric_not_printed", name=name, pattern=pattern)
            for name, pattern in (metrics or {}).items()
        }
        """Of each metric what is to be said if it never comes."""
        for name, (file, column) in (columns or {}).items():
            self._not_found[name] = note("metric_not_written", name=name, file=file, column=column)
        self._end_search = search_output(metrics or {}, self._printed)
        self._scalars = OwnScalars(self._curve.metric, folder.tensorboard_folder)
        self._columns = CsvColumns(columns or {}, self._printed)
        self._look()

    @property
    def notes(self) -> list[Note]:
        """What could not be done, and why."""
        return self._model.notes

    @property
    def missing(self) -> list[Note]:
        """Metrics that were asked for and have not come."""
        return list(self._not_found.values())

    @property
    def progress(self) -> Progress:
        """How far it came."""
        return Progress(
            epochs_done=self._curve.num_epochs,
            steps_done=self.tracer.num_steps,
            final=dict(self._curve.final),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What the settings were seen to be, and how far the run went."""
        return facts_of(self.tracer) | run_facts(self.tracer)

    def close(self, arguments: Sequence[str] = (), *, is_cut: bool = False) -> None:
        """The training has ended, however it did: nothing is seen any more, and all is written. `arguments`
        are those of the script; `is_cut`: it did not come to its end."""
        self.tracer.close()
        self._look()
        self._scalars.close()
        told.stop_listening(self._curve.metric)
        self._end_search()
        self._model.close()
        self._curve.finish(is_cut=is_cut)
        self._model.finish(self.progress)
        record = watched_record(self.tracer, arguments, self._rank)
        self._folder.watched_by(self._rank).write(record)

    def _printed(self, name: str, value: float) -> None:
        self._not_found.pop(name, None)
        self._curve.printed(name, value)

    def _look(self) -> None:
        """For metrics that the script has begun to write; before the update they are of is followed by
        another."""
        self._scalars.look()
        self._columns.look()

    def _step_ended(self, step: int) -> None:
        self._model.step_ended(step)
        if not self._sees_all:
            self.tracer.follower = None  # its one look at the model was in the first step
        self._scalars.look()
        if self._curve.step_ended():
            self._model.flush()
        if (now_s := time.monotonic()) - self._told_s > PROGRESS_EVERY_S:
            self._told_s = now_s
            self._on_progress(step, self._curve.last)
        if self.on_step is not None:
            self.on_step(step)


def watched_record(tracer: Tracer, arguments: Sequence[str], rank: int = 0) -> WatchedRecord:
    """Of a process that has ended, but for its record."""
    timeline, log = tracer.timeline, tracer.log
    total_ns, kept = timeline.total_ns, list(kept_between(1, tracer.num_steps + 1))
    call_us, mark_us = overhead_us(has_optimizer=tracer.has_optimizer)
    return WatchedRecord(
        rank=rank,
        arguments=list(arguments),
        num_steps=tracer.num_steps,
        num_backward=len(log.losses),
        num_evaluation_passes=timeline.num_evaluation_passes,
        wall_s=sum(total_ns) / 1e9,
        parts_s={name: spent / 1e9 for name, spent in zip(PARTS, total_ns, strict=True) if spent},
        steps=kept,
        steps_ms=parts_ms([tracer.steps_ns[step - 1] for step in kept]),
        losses=[
            loss if math.isfinite(loss) else None for loss in log.losses.values()[:MOST_LOSSES]
        ],
        batch_size=log.batch_size,
        threads=torch.get_num_threads(),
        loaders=[LoaderRow(**_fields(LoaderRow, one)) for one in log.loaders],
        models=log.models,
        optimizers=[OptimizerRow(**_fields(OptimizerRow, one)) for one in log.optimizers],
        memory=tracer.memory_bytes,
        num_calls=timeline.num_calls,
        call_us=call_us,
        num_marks=timeline.num_marks,
        mark_us=mark_us if timeline.num_marks else 0.0,
        instruments_s=timeline.paused_ns / 1e9,
    )


def _fields(kind: type[Record], seen: object) -> dict[str, Any]:
    """What is kept of it."""
    return {name: getattr(seen, name) for name in kind.model_fields}


def overhead_us(*, has_optimizer: bool) -> tuple[float, float]:
    """What watching adds here and now, in microseconds: to a call that is seen to begin or end, and to one
    that is only counted; by a tiny loop that is watched and not watched, in turns. `has_optimizer`: whether
    the script has made one; torch takes seconds for the first."""
    # Only where another is set: with a device that is set, every call of torch takes longer.
    is_on_cpu = torch.get_default_device().type == "cpu"
    on_cpu = nullcontext() if is_on_cpu else torch.device("cpu")
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), on_cpu:
        return _overhead_us(has_optimizer=has_optimizer)
    return 0.0, 0.0


def _overhead_us(*, has_optimizer: bool) -> tuple[float, float]:
    # Drawn from no random numbers of the script's.
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    dataset = TensorDataset(torch.zeros(4 * (ROUNDS + 1) * STEPS, 4, dtype=torch.float32))
    batches = iter(DataLoader(dataset, generator=torch.Generator()))
    tracer = Tracer()
    timeline = tracer.timeline

    def steps_us() -> list[float]:
        times_ns = [perf_counter_ns()]
        for (batch,) in islice(batches, STEPS):
            model.zero_grad()
            model(batch).sum().backward()
            if optimizer is not None:
                optimizer.step()
            times_ns.append(perf_counter_ns())
        return [(end - start) / 1e3 for start, end in pairwise(times_ns)]

    def added_us(*, is_counted: bool) -> float:
        """To each call of a step. By the median step, not turn: beside other ranks on few cores most turns
        are interrupted, and few steps."""
        watched_us: list[float] = []
        bare_us: list[float] = []
        before = timeline.num_calls + timeline.num_marks
        for _ in range(ROUNDS):
            if is_counted:
                tracer.count()
            watched_us += steps_us()
            tracer.see_whole()
            tracer.hooks.close()
            bare_us += steps_us()
            tracer.hooks = Hooks(tracer, timeline)
        number = (timeline.num_calls + timeline.num_marks - before) / ROUNDS / STEPS
        added = statistics.median(watched_us) - statistics.median(bare_us)
        return max(0.0, added / number) if number else 0.0

    steps_us()
    call_us = added_us(is_counted=False)
    mark_us = added_us(is_counted=True) if has_optimizer else 0.0
    tracer.close()
    return call_us, mark_us


def facts_of(tracer: Tracer) -> dict[str, Any]:
    """What a script's settings were seen to be so far, by the names that reports and comparisons use."""
    log = tracer.log
    facts: dict[str, Any] = {"device": tracer.device, "threads": torch.get_num_threads()}
    size, samples = log.batch_size, samples_per_update(tracer)
    batches = round(samples / size) if size and samples else 1
    facts |= {"batch_size": size, "accumulate": batches if batches > 1 else None}
    if log.optimizers:
        lrs = (one.lr for one in log.optimizers if one.lr is not None)
        facts |= {"optimizer": _names(one.name for one in log.optimizers), "lr": next(lrs, None)}
    if models := log.models[: tracer.num_first_models]:
        facts["model"] = _names(one.name for one in models)
        facts["parameters"] = sum(one.num_parameters for one in models)
        facts["dtype"] = _names(sorted({dtype for one in models for dtype in one.dtypes}))
    if (trained := log.trained_loader) is not None:
        facts |= {"order": trained.order, "workers": trained.num_workers}
        facts |= {"pinned": trained.pin_memory, "drop_last": trained.drop_last}
        facts["train_samples"] = trained.num_samples
    return {name: fact for name, fact in facts.items() if fact is not None}


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def run_facts(tracer: Tracer) -> dict[str, Any]:
    """How far a whole run went."""
    passes = [one.num_trained for one in tracer.log.loaders if one.is_trained_on]
    return {"updates": tracer.num_steps} | ({"passes": max(passes)} if passes else {})


def samples_per_update(tracer: Tracer) -> int | None:
    """Of a usual update: one of several batches has the samples of all. None where no loader tells."""
    if (size := tracer.log.batch_size) is None:
        return None
    given = [after - before for before, after in pairwise([0, *tracer.log.samples])]
    return max(size, statistics.median_low(given) if given else 0)
