"""Workload: a model, its data, its loss and metrics, and default settings. Nothing else."""

import hashlib
import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainlab.data.dataset import Dataset
from trainlab.errors import WorkloadError
from trainlab.spec.settings import Scalar
from trainlab.spec.workload import WorkloadFacts


def unchanged(inputs: Tensor) -> Tensor:
    """The preparation of data that is stored as the model wants it."""
    return inputs


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Per sample: 1 where the largest output is the target class, else 0."""
    if targets.is_floating_point():
        raise WorkloadError("metrics.accuracy: targets are no classes; give metrics={} or your own")
    shape = tuple(outputs.shape)
    if shape[:-1] != tuple(targets.shape) or shape[-1] < 2:
        raise WorkloadError(
            f"metrics.accuracy: outputs of shape {shape} are no score per class for targets of shape "
            f"{tuple(targets.shape)}; give metrics={{}} or your own"
        )
    return outputs.argmax(dim=-1) == targets


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is trained and on what; plain callables, so that your own needs no base class.

    For example:

        workload = Workload(
            name="digits",
            model=lambda hidden=64: nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), ...),
            data=lambda choice: Dataset("digits", Split(x, y), Split(x_test, y_test)),
            loss=F.cross_entropy,
        )
    """

    name: str
    model: Callable[..., nn.Module]
    """Makes the model, untrained; its keyword parameters can be set and varied."""
    data: Callable[[str], Dataset]
    """Gives the data for `full`, `bundled`, `auto` or a folder; may ignore the choice."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """(outputs, targets) to the mean loss of the batch: what is differentiated."""
    prepare: Callable[[Tensor], Tensor] = unchanged
    """Stored inputs of a batch to the model's input, on the device (say, scaling pixels)."""
    metrics: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = field(
        default_factory=lambda: {"accuracy": accuracy}
    )
    """Name to (outputs, targets) to one value per sample; averaged over samples by us."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings to start from, as in TrainSpec."""
    summary: str = ""
    """One line for listings."""

    def __post_init__(self) -> None:
        if "loss" in self.metrics:
            raise WorkloadError(
                f"{self.name}: metrics.loss: the loss is recorded by itself; rename it"
            )

    @cached_property
    def code(self) -> str:
        """A fingerprint of the source files of model, data, loss and preparation, so that runs before and
        after a change of the model are not taken for the same."""
        parts = (self.model, self.data, self.loss, self.prepare)
        files = dict.fromkeys(filter(None, map(_file_of, parts)))
        content = b"".join(file.read_bytes() for file in sorted(files, key=lambda file: file.name))
        return hashlib.sha256(content).hexdigest()[:12]

    @cached_property
    def facts(self) -> WorkloadFacts:
        """What a study needs to know of it."""
        parameters = inspect.signature(self.model).parameters
        takes_any = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        names = None if takes_any else tuple(parameters)
        model_defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if isinstance(parameter.default, Scalar)
        }
        metrics = tuple(self.metrics)
        return WorkloadFacts(self.name, self.defaults, names, metrics, model_defaults)

    def build(self, parameters: Mapping[str, Any]) -> nn.Module:
        """The untrained model with these parameters."""
        self.facts.check_parameters(parameters)
        model = self.model(**parameters)
        if not isinstance(model, nn.Module):
            kind = type(model).__name__
            raise WorkloadError(f"{self.name}: model gave {kind}, must be nn.Module")
        return model


def _file_of(part: object) -> Path | None:
    """The file with the source of a function, class or instance; None if typed into a session."""
    source = part if inspect.isroutine(part) or inspect.isclass(part) else type(part)
    try:
        file = inspect.getsourcefile(inspect.unwrap(source))
    except TypeError:
        return None
    return Path(file) if file and Path(file).is_file() else None


def line_in_file(error: BaseException, part: object) -> str:
    """`file.py:12: ` for the last line of a part's own file that an error came from; empty if none."""
    file = _file_of(part)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if file and Path(frame.filename) == file]
    return f"{file.name}:{lines[-1]}: " if file and lines else ""


class Scale:
    """Pixels 0…255 to (pixel / 255 - mean) / std, as one multiply and one add."""

    def __init__(self, mean: float, std: float) -> None:
        self.mean, self.std = mean, std
        self._factor = 1 / (255 * std)
        self._shift = -mean / std

    def __call__(self, inputs: Tensor) -> Tensor:
        return inputs.to(torch.float32).mul_(self._factor).add_(self._shift)
