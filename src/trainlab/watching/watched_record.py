"""From what was seen to its record."""

import math
import statistics
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from time import perf_counter_ns
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.record.schema import Record
from trainlab.record.script_record import LoaderRow, ModelRow, OptimizerRow, WatchedRecord
from trainlab.watching.script_curve import kept_between, parts_ms
from trainlab.watching.seeing.calls.hooks import Hooks
from trainlab.watching.seeing.looks import EVERY
from trainlab.watching.seeing.seen import Seen, SeenLoader, SeenModel, SeenOptimizer
from trainlab.watching.seeing.timeline import PARTS
from trainlab.watching.seeing.watcher import Watcher

# What watching costs here and now: a tiny loop with torch's calls seen and not seen, in turns.

ROUNDS = 15
STEPS = 6
"""Of a turn."""
ROUNDS_PASSED = 2
"""Of longer turns, in which steps are passed by: EVERY of them, as on average."""


@dataclass(frozen=True)
class Price:
    """What watching adds to a process, in microseconds, all around a call included."""

    call_us: float = 0.0
    """To see one begin, or end."""
    mark_us: float = 0.0
    """To pass a mark by, where nothing else is seen."""


def price(*, has_optimizer: bool, has_marks: bool) -> Price:
    """Drawn from no random numbers of the script's, and on the CPU whatever it has set. `has_optimizer`:
    whether it has made one; torch takes seconds for the first. `has_marks`: whether steps were passed by;
    else their price is 0."""
    # Only where another is set: with a device that is set, every call of torch takes longer.
    is_on_cpu = torch.get_default_device().type == "cpu"
    on_cpu = nullcontext() if is_on_cpu else torch.device("cpu")
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), on_cpu:
        return _price(has_optimizer=has_optimizer, has_marks=has_marks)
    return Price()


def _price(*, has_optimizer: bool, has_marks: bool) -> Price:
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    num_batches = 2 * (ROUNDS * STEPS + ROUNDS_PASSED * EVERY) + STEPS
    dataset = TensorDataset(torch.zeros(num_batches, 4, dtype=torch.float32))
    loader = DataLoader(dataset, generator=torch.Generator())
    watcher = Watcher()
    timeline, batches = watcher.timeline, iter(loader)

    def step_us(num_steps: int) -> list[float]:
        """Of each step; what seeing does once a turn is shared by its steps."""
        times_ns = [perf_counter_ns()]
        for (batch,) in islice(batches, num_steps):
            model.zero_grad()
            model(batch).sum().backward()
            if optimizer is not None:
                optimizer.step()
            times_ns.append(perf_counter_ns())
        watcher.see_all()
        shared_us = (perf_counter_ns() - times_ns[-1]) / 1e3 / num_steps
        return [(end - start) / 1e3 + shared_us for start, end in pairwise(times_ns)]

    def pairs_us(
        num_rounds: int, num_steps: int, *, are_passed: bool
    ) -> tuple[list[float], list[float]]:
        """Of steps that are seen, or passed by, and of as many that are not watched. Turns are as long: the
        first steps of each are slower."""
        watched_us: list[float] = []
        bare_us: list[float] = []
        for _ in range(num_rounds):
            if are_passed:
                watcher.pass_by(num_steps + 1)
            watched_us += step_us(num_steps)
            watcher.hooks.close()
            bare_us += step_us(num_steps)
            watcher.hooks = Hooks(watcher)
        return watched_us, bare_us

    step_us(STEPS)
    num_calls = timeline.num_calls
    seen = pairs_us(ROUNDS, STEPS, are_passed=False)
    call_us = _added_us(*seen, (timeline.num_calls - num_calls) / ROUNDS / STEPS)
    mark_us = 0.0
    if has_marks:
        passed = pairs_us(ROUNDS_PASSED, EVERY, are_passed=True)
        mark_us = _added_us(*passed, timeline.num_marks / ROUNDS_PASSED / EVERY)
    watcher.close()
    return Price(call_us, mark_us)


def _added_us(watched_us: list[float], bare_us: list[float], number: float) -> float:
    """To each of so many events of a step. By the median step, not turn: beside other ranks on few cores
    most turns are interrupted, and few steps."""
    added = statistics.median(watched_us) - statistics.median(bare_us)
    return max(0.0, added / number) if number else 0.0


MOST_LOSSES = 20_000


def watched_record(watcher: Watcher, arguments: Sequence[str], rank: int = 0) -> WatchedRecord:
    """Of a process that has ended, but for its record."""
    total_ns, seen = watcher.timeline.total_ns, watcher.seen
    kept = list(kept_between(1, watcher.num_steps + 1))
    losses = watcher.course.losses.values()[:MOST_LOSSES]
    has_marks = watcher.timeline.num_marks > 0
    prices = price(has_optimizer=watcher.has_optimizer, has_marks=has_marks)
    return WatchedRecord(
        rank=rank,
        arguments=list(arguments),
        num_steps=watcher.num_steps,
        num_backward=watcher.course.num_backward,
        num_evaluation_passes=watcher.timeline.num_evaluation_passes,
        wall_s=sum(total_ns) / 1e9,
        parts_s={name: spent / 1e9 for name, spent in zip(PARTS, total_ns, strict=True) if spent},
        steps=kept,
        steps_ms=parts_ms([watcher.steps_ns[step - 1] for step in kept]),
        losses=[loss if math.isfinite(loss) else None for loss in losses],
        batch_size=seen.batch_size,
        threads=torch.get_num_threads(),
        loaders=[_row(LoaderRow, one) for one in seen.loaders],
        models=[_row(ModelRow, one) for one in seen.models],
        optimizers=[_row(OptimizerRow, one) for one in seen.optimizers],
        memory=watcher.memory_bytes,
        num_calls=watcher.timeline.num_calls,
        call_us=prices.call_us,
        num_marks=watcher.timeline.num_marks,
        mark_us=prices.mark_us,
        instruments_s=watcher.timeline.paused_ns / 1e9,
    )


R = TypeVar("R", bound=Record)


def _row(kind: type[R], seen: SeenLoader | SeenModel | SeenOptimizer) -> R:
    """What is kept of it."""
    return kind(**{name: getattr(seen, name) for name in kind.model_fields})


# Facts: what a script's settings were seen to be, by the names that reports and comparisons use.


def facts_of(watcher: Watcher) -> dict[str, Any]:
    """Of the process so far; what was not seen is left out."""
    seen = watcher.seen
    facts = {
        "device": watcher.device,
        "threads": torch.get_num_threads(),
        "batch_size": seen.batch_size,
        "accumulate": _batches_per_update(watcher),
        **_optimizer_facts(seen),
        **_model_facts(seen.models[: watcher.num_first_models]),
        **_loader_facts(seen),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def samples_per_update(watcher: Watcher) -> int | None:
    """Of a usual update: one of several batches has the samples of all. None where no loader tells."""
    size = watcher.seen.batch_size
    if size is None:
        return None
    given = [after - before for before, after in pairwise([0, *watcher.course.samples])]
    usual = statistics.median_low(given) if given else 0
    return usual if usual > size else size


def _batches_per_update(watcher: Watcher) -> int | None:
    """None for one, which needs no saying."""
    size, samples = watcher.seen.batch_size, samples_per_update(watcher)
    if not size or samples is None or (number := round(samples / size)) < 2:
        return None
    return number


def course_facts(watcher: Watcher) -> dict[str, Any]:
    """How far a whole run went."""
    passes = [one.num_trained for one in watcher.seen.loaders if one.is_trained_on]
    return {"updates": watcher.num_steps} | ({"passes": max(passes)} if passes else {})


def _optimizer_facts(seen: Seen) -> dict[str, Any]:
    if not seen.optimizers:
        return {}
    names = list(dict.fromkeys(one.name for one in seen.optimizers))
    lrs = (one.lr for one in seen.optimizers if one.lr is not None)
    return {"optimizer": ", ".join(names), "lr": next(lrs, None)}


def _model_facts(models: Sequence[SeenModel]) -> dict[str, Any]:
    if not models:
        return {}
    names = list(dict.fromkeys(one.name for one in models))
    dtypes = sorted({dtype for one in models for dtype in one.dtypes})
    return {
        "model": ", ".join(names),
        "parameters": sum(one.num_parameters for one in models),
        "dtype": ", ".join(dtypes),
    }


def _loader_facts(seen: Seen) -> dict[str, Any]:
    trained = next((one for one in seen.loaders if one.is_trained_on), None)
    if trained is None:
        return {}
    return {
        "order": trained.order,
        "workers": trained.num_workers,
        "pinned": trained.pin_memory,
        "drop_last": trained.drop_last,
        "train_samples": trained.num_samples,
    }
