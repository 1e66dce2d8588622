"""From losses to changed weights: scaled, clipped and averaged as the settings ask."""

from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from trainlab.train.setup import Setup
from trainlab.train.steps.outcome import check_gradient
from trainlab.workloads.user_code import BACKWARD, OPTIMIZER


class Descent:
    """Of one optimizer."""

    def __init__(self, setup: Setup) -> None:
        (self._optimizer,) = setup.optimizers.by_name.values()
        self._scaler, self._average, self._model = setup.scaler, setup.average, setup.model
        self._where = "loss" if setup.workload.step is None else "step"
        self._most = setup.settings.clip_grad_norm
        groups = self._optimizer.param_groups
        self._parameters = [parameter for group in groups for parameter in group["params"]]

    def backward(self, loss: Tensor, *, is_last: bool = True) -> None:
        """Adds to the gradients of an update; after the last of its losses they are whole."""
        check_gradient(loss, self._where)
        with BACKWARD:
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        if self._scaler is not None and is_last:
            self._scaler.unscale_(self._optimizer)

    def step(self) -> None:
        """Changes the weights by the gradients."""
        if self._most is not None:
            clip_grad_norm_(self._parameters, self._most)
        with OPTIMIZER:
            if self._scaler is None:
                self._optimizer.step()
            else:
                self._scaler.step(self._optimizer)
                self._scaler.update()
        if self._average is not None:
            self._average.update_parameters(self._model)
