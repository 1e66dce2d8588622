"""From what was seen to its record."""

import math
import statistics
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import islice, pairwise
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.record.schema import Record
from trainlab.record.script_record import LoaderRow, OptimizerRow, WatchedRecord
from trainlab.watching.hooks import Hooks
from trainlab.watching.script_curve import kept_between, parts_ms
from trainlab.watching.timeline import PARTS
from trainlab.watching.tracer import Tracer

MOST_LOSSES = 20_000
ROUNDS, STEPS = 15, 6
"""In which watching is measured, and steps of each."""


def overhead_us(*, has_optimizer: bool) -> tuple[float, float]:
    """What watching adds here and now, in microseconds: to a call that is seen to begin or end, and to one
    that is only counted; by a tiny loop that is watched and not watched, in turns. Drawn from no random
    numbers of the script's, and on the CPU whatever it has set. `has_optimizer`: whether it has made one;
    torch takes seconds for the first."""
    # Only where another is set: with a device that is set, every call of torch takes longer.
    is_on_cpu = torch.get_default_device().type == "cpu"
    on_cpu = nullcontext() if is_on_cpu else torch.device("cpu")
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), on_cpu:
        return _overhead_us(has_optimizer=has_optimizer)
    return 0.0, 0.0


def _overhead_us(*, has_optimizer: bool) -> tuple[float, float]:
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    dataset = TensorDataset(torch.zeros(4 * (ROUNDS + 1) * STEPS, 4, dtype=torch.float32))
    loader = DataLoader(dataset, generator=torch.Generator())
    tracer = Tracer()
    timeline, batches = tracer.timeline, iter(loader)

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


def facts_of(tracer: Tracer) -> dict[str, Any]:
    """What a script's settings were seen to be so far, by the names that reports and comparisons use."""
    log, facts = tracer.log, dict[str, Any]()
    facts |= {"device": tracer.device, "threads": torch.get_num_threads()}
    facts |= {"batch_size": log.batch_size, "accumulate": _batches_per_update(tracer)}
    if log.optimizers:
        lrs = (one.lr for one in log.optimizers if one.lr is not None)
        facts |= {"optimizer": _names(one.name for one in log.optimizers), "lr": next(lrs, None)}
    if models := log.models[: tracer.num_first_models]:
        facts["model"] = _names(one.name for one in models)
        facts["parameters"] = sum(one.num_parameters for one in models)
        facts["dtype"] = _names(sorted({dtype for one in models for dtype in one.dtypes}))
    if (trained := next((one for one in log.loaders if one.is_trained_on), None)) is not None:
        facts |= {"order": trained.order, "workers": trained.num_workers}
        facts |= {"pinned": trained.pin_memory, "drop_last": trained.drop_last}
        facts["train_samples"] = trained.num_samples
    return {name: fact for name, fact in facts.items() if fact is not None}


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


def _batches_per_update(tracer: Tracer) -> int | None:
    """None for one, which needs no saying."""
    size, samples = tracer.log.batch_size, samples_per_update(tracer)
    number = round(samples / size) if size and samples else 1
    return number if number > 1 else None


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
