"""How many threads train a model: torch's number, or one where that was measured to be faster.

Threads that share a small operation wait for each other longer than they save, much longer where anything
else runs.
"""

import copy
import time
from collections.abc import Callable

import torch

from trainlab.train.optimizers import can_be_fused, make_optimizer
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.tuned.choices import TORCH, faster, kept_choice

ONE = "one"
LONGEST_S = 0.03
"""Of an update whose threads are looked at: a longer one is worth sharing."""
FEWEST_UPDATES = 200
"""Of a training that pays for it."""
AT_ONCE = 3
"""Updates of one measurement: the first finds the threads of the other way."""


def faster_threads(setup: Setup) -> int:
    """What was decided for such a model and batch on this machine, or is now. RecordError where that cannot
    be kept."""
    default, settings = torch.get_num_threads(), setup.settings
    if settings.threads is not None or default == 1 or setup.num_steps < FEWEST_UPDATES:
        return default
    facts = (str(setup.model), settings.batch_size, settings.optimizer, settings.precision)
    choice = kept_choice("threads", facts, lambda: {"threads": _decided(setup, default)})
    return 1 if choice.get("threads") == ONE else default


def _decided(setup: Setup, default: int) -> str:
    try:
        with seeded(setup.trial.seed, "tuned"):
            update = _update_of_copy(setup)
            update()
            begun_s = time.perf_counter()
            update()
            if time.perf_counter() - begun_s > LONGEST_S:
                return TORCH
            return faster({TORCH: _with(default, update), ONE: _with(1, update)})[0]
    except Exception:  # noqa: BLE001  the user's code, which may raise anything; training will say so
        return TORCH
    finally:
        torch.set_num_threads(default)


def _update_of_copy(setup: Setup) -> Callable[[], None]:
    """An update of a copy of the model, always on the same samples."""
    model = copy.deepcopy(setup.model).train()
    optimizer = make_optimizer(
        setup.settings, model.parameters(), setup.device, can_be_fused=can_be_fused(model)
    )
    batches, loss_of, prepare = setup.split_batches, setup.loss, setup.workload.prepare
    rows = batches.first_rows()

    def update() -> None:
        inputs, targets = batches.samples(rows)
        optimizer.zero_grad()
        with setup.autocast():
            loss = loss_of(model(prepare(inputs)), targets)
        loss.backward()
        optimizer.step()

    return update


def _with(threads: int, update: Callable[[], None]) -> Callable[[], None]:
    def updates() -> None:
        torch.set_num_threads(threads)
        for _ in range(AT_ONCE):
            update()

    return updates
