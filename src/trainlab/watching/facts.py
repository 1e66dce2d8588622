"""Facts: what a script's settings were seen to be, by the names that reports and comparisons use."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from trainlab.watching.seeing.seen import Seen, SeenModel
from trainlab.watching.seeing.watcher import Watcher


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
