"""compiled: the model compiled by `torch.compile`, its steps else as eager makes them."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from trainlab.errors import TrainlabError
from trainlab.train.engines.eager import EagerSession, make_training_step
from trainlab.train.engines.engine import Member, Update
from trainlab.train.moments import Grain, Moments
from trainlab.train.program.unsuited import Unsuited, reason_of
from trainlab.train.setup import Setup
from trainlab.train.steps.evaluation import make_inference_step
from trainlab.train.steps.forward import Forward


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
    """The set-up with a compiled model that shares the weights of its own; a copy was tried out."""
    if setup.workload.update is not None:
        raise Unsuited("not_ours", what="update")
    with torch.random.fork_rng(devices=[setup.device] if setup.device.type == "cuda" else []):
        try:
            # A copy is tried: a model may count its calls, or keep what it sees.
            with torch.enable_grad():
                _try_out(replace(setup, model=_compile(copy.deepcopy(setup.model))))
            compiled = replace(setup, model=_compile(setup.model))
        except TrainlabError:
            raise
        except Exception as error:
            raise Unsuited("not_compilable", reason=reason_of(error)) from error
    return compiled


def _compile(model: nn.Module) -> nn.Module:
    # Random numbers from torch's own operators: dropout then drops what it drops in eager.
    return cast(nn.Module, torch.compile(model, options={"fallback_random": True}))


def _try_out(setup: Setup) -> None:
    """Compiles, by a step whose gradients are thrown away."""
    setup.model.train()
    outcome = Forward(setup, Moments([]))(setup.train_batches.sample())
    parameters = [one for one in setup.model.parameters() if one.requires_grad]
    torch.autograd.grad(outcome.loss, parameters, allow_unused=True)
