"""What a workload's own update gets to work with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainlab.spec import TrainSpec
from trainlab.train.moments import Moments


class Context:
    """Handed to `update(ctx, batch)`, which makes one update of everything."""

    def __init__(
        self,
        models: nn.Module,
        optimizers: Mapping[str, Optimizer],
        settings: TrainSpec,
        device: torch.device,
        moments: Moments,
        state: dict[str, Any],
    ) -> None:
        self.models = models
        """The workload's models by name; where it has one, that one."""
        self.optimizers = optimizers
        """By name; where there is one, as `optimizer` too."""
        self.settings, self.device = settings, device
        self.state = state
        """Handed on from batch to batch; empty at the start of an epoch."""
        self._moments = moments

    @property
    def model(self) -> nn.Module:
        """The same as `models`."""
        return self.models

    @property
    def optimizer(self) -> Optimizer:
        """The only one."""
        (one,) = self.optimizers.values()
        return one

    def backward(self, loss: Tensor, **options: Any) -> None:
        """As `loss.backward()`, seen by whoever watches the phases of a step."""
        self._moments.phase_ends("forward")
        self._moments.phase_ends("loss")
        loss.backward(**options)
        self._moments.phase_ends("backward")
        self._moments.passes_go_on()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The steps of the optimizers in this block are seen too."""

        def ends(*_: Any) -> None:
            self._moments.phase_ends("optimizer")

        optimizers = self.optimizers.values()
        hooks = [one.register_step_post_hook(ends) for one in optimizers]
        if self._moments.is_watched("gradients_ready") or self._moments.is_watched("update_begins"):
            # Last among its hooks: the workload's own, which may clip, have run then.
            hooks += [one.register_step_pre_hook(self._step_begins) for one in optimizers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _step_begins(
        self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Gradients are whole here, or where the optimizer asks for them itself: behind its closure."""
        groups = optimizer.param_groups
        owned = frozenset(id(parameter) for group in groups for parameter in group["params"])
        self._moments.update_begins(owned)
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            self._moments.gradients_ready(owned)
            return None

        def answered() -> Any:
            loss = closure()
            self._moments.gradients_ready(owned)
            return loss

        if "closure" in named:
            return arguments, {**named, "closure": answered}
        return (arguments[0], answered, *arguments[2:]), named
