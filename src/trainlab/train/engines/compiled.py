"""compiled: the model compiled by `torch.compile`, its steps else as eager makes them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from trainlab.errors import TrainlabError
from trainlab.train.engines.eager import EagerSession, make_training_step
from trainlab.train.engines.engine import Member, Update
from trainlab.train.evaluation import make_inference_step
from trainlab.train.moments import Grain, Moments
from trainlab.train.program.unsuited import Unsuited, reason_of
from trainlab.train.setup import Setup


class CompiledEngine:
    """Takes one trial at a time. Compiling takes seconds to minutes, before the first update."""

    name = "compiled"
    shows: Grain = "phase"
    takes_many = False
    is_program = False

    def open(self, group: Sequence[Member]) -> EagerSession:
        (member,) = group
        return EagerSession(replace(member, setup=_compiled(member.setup)))

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        return make_training_step(_compiled(setup), moments)

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        return make_inference_step(_compiled(setup), moments)


def _compiled(setup: Setup) -> Setup:
    """The set-up with a compiled model that shares the weights of its own, compiled and tried out."""
    rows = setup.train_batches.rows(torch.arange(setup.train_batches.num_samples))[0]
    with torch.random.fork_rng(devices=[setup.device] if setup.device.type == "cuda" else []):
        try:
            # Random numbers from torch's own operators: dropout then drops what it drops in eager.
            options: dict[str, Any] = {"fallback_random": True}
            model = cast(nn.Module, torch.compile(setup.model, options=options))
            compiled = replace(setup, model=model)
            with torch.enable_grad():
                _try_out(compiled, rows)
        except TrainlabError:
            raise
        except Exception as error:
            raise Unsuited("not_compilable", reason=reason_of(error)) from error
    return compiled


def _try_out(setup: Setup, rows: torch.Tensor) -> None:
    """Compiles, by a step whose gradients are thrown away; what it did to buffers is undone."""
    buffers = [(buffer, buffer.clone()) for buffer in setup.model.buffers()]
    setup.model.train()
    inputs, targets = setup.train_batches.move(*setup.train_batches.gather(rows))
    with setup.autocast():
        loss = setup.workload.loss(setup.model(setup.workload.prepare(inputs)), targets)
    torch.autograd.grad(
        loss, [p for p in setup.model.parameters() if p.requires_grad], allow_unused=True
    )
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
