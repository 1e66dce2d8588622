"""From what was seen to its record."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import torch

from trainlab.record.scripts.watched import LoaderRow, ModelRow, OptimizerRow, WatchedRecord
from trainlab.watching.curve import is_kept, parts_ms
from trainlab.watching.price import call_us
from trainlab.watching.seeing.seen import SeenLoader
from trainlab.watching.seeing.timeline import PARTS
from trainlab.watching.seeing.watcher import Watcher

MOST_LOSSES = 20_000


def watched_record(watcher: Watcher, arguments: Sequence[str], rank: int = 0) -> WatchedRecord:
    """Of a process that has ended, but for its record."""
    total_ns, seen = watcher.timeline.total_ns, watcher.seen
    kept = [step for step in range(1, watcher.num_steps + 1) if is_kept(step)]
    losses = watcher.losses.values()[:MOST_LOSSES]
    return WatchedRecord(
        rank=rank,
        arguments=list(arguments),
        num_steps=watcher.num_steps,
        num_backward=watcher.num_backward,
        num_evaluation_passes=watcher.timeline.num_evaluation_passes,
        wall_s=sum(total_ns) / 1e9,
        parts_s={name: spent / 1e9 for name, spent in zip(PARTS, total_ns, strict=True) if spent},
        steps=kept,
        steps_ms=parts_ms([watcher.steps_ns[step - 1] for step in kept]),
        losses=[loss if math.isfinite(loss) else None for loss in losses],
        batch_size=seen.batch_size,
        threads=torch.get_num_threads(),
        loaders=[_loader_row(one) for one in seen.loaders],
        models=[
            ModelRow(
                name=one.name,
                num_parameters=one.num_parameters,
                devices=list(one.devices),
                dtypes=list(one.dtypes),
                is_compiled=one.is_compiled,
            )
            for one in seen.models
        ],
        optimizers=[OptimizerRow(**asdict(one)) for one in seen.optimizers],
        memory=watcher.memory_bytes,
        num_calls=watcher.timeline.num_calls,
        call_us=call_us(has_optimizer=watcher.has_optimizer),
    )


def _loader_row(loader: SeenLoader) -> LoaderRow:
    values = asdict(loader)
    return LoaderRow(**{name: values[name] for name in LoaderRow.model_fields})
