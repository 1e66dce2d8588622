"""Lazy modules of torch (`nn.LazyLinear` and the like): their parameters get shapes from a first batch."""

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy as has_no_shape

from trainlab.errors import WorkloadError
from trainlab.workloads.workload import Workload, takes_carried


def is_lazy(model: nn.Module) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return any(map(has_no_shape, [*model.parameters(), *model.buffers()]))


def finish_lazy(model: nn.Module, workload: Workload, batch: Any) -> None:
    """One forward pass as in a test, so that nothing but the missing parameters changes. They are drawn as
    all others are: it must run where the model's own weights are drawn, on the CPU."""
    own = workload.evaluate or workload.step
    was_training = model.training
    model.eval()
    with torch.no_grad():
        if own is None:
            model(workload.prepare(batch[0]))
        else:
            own(model, batch, *(({},) if takes_carried(own) else ()))
    model.train(was_training)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if has_no_shape(tensor):
            where = f"{workload.name}: model.{name}"
            raise WorkloadError(
                f"{where}: has no shape after a batch, must get one in a forward pass of the test; "
                "give its layer a size"
            )
