"""From what was seen to its record."""

import math
from collections.abc import Sequence
from typing import TypeVar

import torch

from trainlab.record.schema import Record
from trainlab.record.scripts.watched import LoaderRow, ModelRow, OptimizerRow, WatchedRecord
from trainlab.watching.curve import kept_between, parts_ms
from trainlab.watching.price import price
from trainlab.watching.seeing.seen import SeenLoader, SeenModel, SeenOptimizer
from trainlab.watching.seeing.timeline import PARTS
from trainlab.watching.seeing.watcher import Watcher

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
