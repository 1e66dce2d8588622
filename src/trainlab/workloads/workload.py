"""Workload: a model, its data, its loss and metrics, and default settings. Nothing else."""

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from trainlab.data.dataset import PLACE, Dataset, tells_names
from trainlab.errors import WorkloadError
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.settings import Scalar
from trainlab.workloads.user_code import DATA, MODEL, gave, is_own, library_of, told_place


@runtime_checkable
class WholeMetric(Protocol):
    """What torchmetrics calls a metric: it takes in batch after batch and then gives its value."""

    def update(self, *batch: Any) -> Any:
        """Takes in outputs and targets of a batch."""

    def compute(self) -> Any:
        """One number, or several by name."""

    def reset(self) -> Any:
        """Forgets everything taken in so far."""


class OfWholeSet:
    """A function of all outputs and all targets, one below the other, to one number. For example
    `OfWholeSet(lambda outputs, targets: F.mse_loss(outputs, targets).sqrt(), higher_is_better=False)`."""

    def __init__(
        self, function: Callable[[Tensor, Tensor], Any], *, higher_is_better: bool | None = None
    ) -> None:
        self._function, self.higher_is_better = function, higher_is_better
        self.reset()

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Keeps a batch, in the host's memory."""
        self._outputs.append(outputs.detach().cpu())
        self._targets.append(targets.detach().cpu())

    def compute(self) -> Any:
        return self._function(torch.cat(self._outputs), torch.cat(self._targets))

    def reset(self) -> None:
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []


Metrics = Mapping[str, Any]


def of_whole_set(metrics: Metrics, device: torch.device) -> Mapping[str, WholeMetric]:
    """Copies of those of whole sets, on the device."""
    copies = {n: copy.deepcopy(one) for n, one in metrics.items() if isinstance(one, WholeMetric)}
    return {n: one.to(device) if hasattr(one, "to") else one for n, one in copies.items()}


def directions(metrics: Metrics) -> dict[str, bool]:
    """Whether higher is better, of the metrics that say so."""
    told = {name: getattr(one, "higher_is_better", None) for name, one in metrics.items()}
    return {name: value for name, value in told.items() if isinstance(value, bool)}


def unchanged(inputs: Tensor) -> Tensor:
    """The preparation of data that is stored as the model wants it."""
    return inputs


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Per sample: 1 where the largest output is the target class, else 0."""
    if targets.is_floating_point():
        raise WorkloadError("metrics.accuracy: targets are no classes; give metrics={} or your own")
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise WorkloadError(
            f"metrics.accuracy: outputs are a {kind}, no score per class; give metrics={{}} or your own"
        )
    shape = tuple(outputs.shape)
    if shape[:-1] != tuple(targets.shape) or shape[-1] < 2:
        raise WorkloadError(
            f"metrics.accuracy: outputs of shape {shape} are no score per class for targets of shape "
            f"{tuple(targets.shape)}; give metrics={{}} or your own"
        )
    return outputs.argmax(dim=-1) == targets


NOT_GIVEN: Mapping[str, Any] = MappingProxyType({})
_MAPPINGS = {
    "metrics": 'name to metric, as {"f1": f1}',
    "defaults": 'setting to value, as {"epochs": 3}',
}


@tells_names(WorkloadError)
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
    model: Callable[..., Any]
    """Makes the model, untrained, or several by name; its keyword parameters can be set and varied."""
    data: Callable[..., Dataset] | Dataset
    """The data, or what gives it: a function that gets the choice (`full`, `bundled`, `auto` or a folder)
    as its first parameter, where that has no default or is called `choice`."""
    loss: Callable[[Any, Any], Tensor] | None = None
    """(outputs, targets) to the mean loss of the batch: what is differentiated. Of batches that are pairs
    of inputs and targets."""
    prepare: Callable[[Tensor], Tensor] = unchanged
    """Stored inputs of a batch to the model's input, on the device (say, scaling pixels)."""
    step: Callable[..., Any] | None = None
    """In place of loss and prepare: (model, batch) to the loss, or to a mapping with `loss` and what else
    is to be logged; `outputs` and `targets` in it go to the metrics. With a third parameter it also gets a
    dict that is handed on from batch to batch."""
    evaluate: Callable[..., Any] | None = None
    """The same for tests; not given: as in training, without gradients."""
    update: Callable[..., Any] | None = None
    """In place of one loss and one optimizer: (ctx, batch) makes one update of everything and returns what
    `step` does. `evaluate` then says what is measured on the test data."""
    optimizer: Callable[..., Any] | None = None
    """(model, settings) to a torch optimizer, or (optimizer, schedule), or several optimizers by name; not
    given: the one that the settings name. A schedule changes the learning rate after each epoch; as
    (optimizer, schedule, "step") after each update."""
    metrics: Mapping[str, Any] = field(default_factory=lambda: NOT_GIVEN)
    """Name to (outputs, targets) to one value per sample; averaged over samples by us. Or to a metric of
    the whole test set: `trainlab.OfWholeSet`, or one of torchmetrics. Not given: accuracy where there is a
    `loss`, none beside a step of your own."""
    objective: str | None = None
    """The metric that answers go by, as `accuracy` or `off_circle:min`, unless a study says otherwise."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings to start from, as in TrainSpec."""
    summary: str = ""
    """One line for listings."""

    def __post_init__(self) -> None:
        if self.metrics is NOT_GIVEN:
            own = {} if self.loss is None else {"accuracy": accuracy}
            object.__setattr__(self, "metrics", own)
        for problem in chain(self._misfits(), self._contradictions()):
            raise WorkloadError(f"{self.name}: {problem}")

    def _misfits(self) -> Iterator[str]:
        """Fields that are not what is due there."""
        for name, rule in _MAPPINGS.items():
            if not isinstance(mapping := getattr(self, name), Mapping):
                yield f"{name}: is a {type(mapping).__name__}, must be a mapping from {rule}"
        if isinstance(self.model, nn.Module):
            kind = type(self.model).__name__
            remedy = f"give what makes one, as model={kind} or model=lambda: {kind}(...)"
            yield f"model: is a {kind}, which all trials would share; {remedy}"
        if self.model is None:
            yield "model: is None, must be a function"
        if not callable(self.data) and not isinstance(self.data, Dataset):
            kind = "None" if self.data is None else f"a {type(self.data).__name__}"
            yield f"data: is {kind}, must be a trainlab.Dataset or a function that gives one"
        names = ("model", "loss", "step", "evaluate", "update", "optimizer")
        given = {name: getattr(self, name) for name in names}
        given |= {f"metrics.{name}": metric for name, metric in self.metrics.items()}
        for name, one in given.items():
            is_measure = name == "loss" or name.startswith("metrics.")
            if is_measure and isinstance(one, type) and issubclass(one, nn.Module | OfWholeSet):
                yield f"{name}: is the class {one.__name__}; make one: {one.__name__}(…)"
            elif one is not None and not callable(one) and not isinstance(one, WholeMetric):
                yield f"{name}: is a {type(one).__name__}, must be a function"

    def _contradictions(self) -> Iterator[str]:
        """Fields that do not go together."""
        learnt = self.loss.named_parameters() if isinstance(self.loss, nn.Module) else ()
        if names := [name for name, one in learnt if one.requires_grad]:
            rule = "which nothing would train; keep them in the model and use step"
            yield f"loss: has parameters of its own, {', '.join(names)}, {rule}"
        if "loss" in self.metrics:
            yield "metrics.loss: the loss is recorded by itself; rename it"
        ways = [one for one in ("loss", "step", "update") if getattr(self, one) is not None]
        if len(ways) != 1:
            has = " and ".join(ways) if ways else "none of them"
            yield f"loss, step, update: has {has}, must have one of them"
        if self.update is not None and self.evaluate is None:
            yield "update: needs evaluate beside it, which says what is measured on the test data"
        if self.update is not None and self.optimizer is None:
            yield "update: needs optimizer beside it, which makes the optimizers that it uses"
        if self.loss is not None and self.evaluate is not None:
            yield "evaluate: goes with step or update; beside loss the test is as the training"
        if self.loss is None and self.prepare is not unchanged:
            yield "prepare: goes with loss; your own function gets the batch as the data gives it"

    @property
    def place(self) -> str:
        """`folder/own.py:12`, where the user's file makes it; empty where that is not known."""
        return str(getattr(self, PLACE, ""))

    @cached_property
    def sample_metrics(self) -> Mapping[str, Callable[[Any, Any], Tensor]]:
        """The metrics that are means over samples; all others are of whole sets."""
        return {n: one for n, one in self.metrics.items() if not isinstance(one, WholeMetric)}

    @property
    def own(self) -> str | None:
        """Which part of a step is the user's own function, and so only eager can make."""
        return next(
            (n for n in ("update", "step", "optimizer") if getattr(self, n) is not None), None
        )

    @cached_property
    def code(self) -> str:
        """A fingerprint of the source files of its parts, or of the instructions of what was typed in, so
        that runs before and after a change are not taken for the same."""
        own = (self.loss, self.step, self.evaluate, self.update, self.optimizer)
        parts = (self.model, self.data, self.prepare, *filter(None, own))
        files = dict.fromkeys(filter(None, map(_file_of, parts)))
        content = b"".join(file.read_bytes() for file in sorted(files, key=lambda file: file.name))
        typed = (part for part in parts if _file_of(part) is None)
        content += b"".join(map(_instructions, typed))
        return hashlib.sha256(content).hexdigest()[:12]

    @cached_property
    def facts(self) -> WorkloadFacts:
        """What a study needs to know of it."""
        parameters = inspect.signature(self.model).parameters
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        own = filter(None, (self.loss, self.step, self.evaluate, self.update))
        of_loss = [named_parameters(one, 2) for one in own]
        of_data: tuple[str, ...] | None = ()
        if not isinstance(self.data, Dataset):
            of_data = named_parameters(self.data, int(_takes_choice(self.data)))
        return WorkloadFacts(
            self.name,
            self.defaults,
            None if takes_any else tuple(parameters),
            tuple(self.metrics),
            {n: one.default for n, one in parameters.items() if isinstance(one.default, Scalar)},
            higher_is_better=directions(self.metrics),
            objective=self.objective,
            logs_more=self.loss is None,
            loss_parameters=None
            if None in of_loss
            else tuple(dict.fromkeys(name for names in of_loss for name in names or ())),
            data_parameters=of_data,
        )

    def dataset(self, choice: str, options: Mapping[str, Any] | None = None) -> Dataset:
        """The data for a choice, made with these options."""
        if isinstance(self.data, Dataset):
            return self.data
        given = (choice,) if _takes_choice(self.data) else ()
        with DATA:
            return self.data(*given, **(options or {}))

    def with_loss(self, parameters: Mapping[str, Any]) -> "Workload":
        """The same with these parameters of its loss, step and update; each gets those that it has."""
        if not parameters:
            return self
        changed: dict[str, Any] = {}
        for field_name in ("loss", "step", "evaluate", "update"):
            own = getattr(self, field_name)
            if own is not None:
                names = named_parameters(own, 2)
                given = {n: v for n, v in parameters.items() if names is None or n in names}
                changed[field_name] = partial(own, **given)
        made = replace(self, **changed)
        object.__setattr__(made, PLACE, getattr(self, PLACE, ""))
        return made

    def build(self, parameters: Mapping[str, Any]) -> nn.Module:
        """The untrained model with these parameters."""
        with MODEL:
            model = self.model(**parameters)
        if isinstance(model, Mapping) and not isinstance(model, nn.Module):
            model = nn.ModuleDict(model)
        if not isinstance(model, nn.Module):
            where = told_place(line_of(self.model) or self.place)
            raise WorkloadError(f"{where}{self.name}: model gave {gave(model)}, must be nn.Module")
        learned = {name: one for name, one in model.named_parameters() if one.requires_grad}
        shared = [name for name, one in learned.items() if _LEARNED.get(id(one)) is one]
        if shared:
            raise WorkloadError(
                f"model: {shared[0]} is a parameter of an earlier model, which all trials would share; "
                "make all layers anew in each call"
            )
        _LEARNED.update({id(one): one for one in learned.values()})
        return model


_LEARNED: WeakValueDictionary[int, nn.Parameter] = WeakValueDictionary()
"""The parameters of the models that there are: trials that share some would go on from each other."""


def _parameters_of(own: Callable[..., Any]) -> list[inspect.Parameter]:
    """None of what has no signature, such as some functions in C."""
    try:
        return list(inspect.signature(own).parameters.values())
    except (TypeError, ValueError):
        return []


def named_parameters(own: Callable[..., Any], num_given: int) -> tuple[str, ...] | None:
    """Parameters of a function beyond the first, which it is given, whose default is a scalar; None where
    it takes any."""
    parameters = _parameters_of(own)
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    placed = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]
    later = [one for one in parameters if one not in placed[:num_given]]
    return tuple(one.name for one in later if one.kind in kinds and isinstance(one.default, Scalar))


def _takes_choice(own: Callable[..., Any]) -> bool:
    """Whether the first argument by place has no default of its own, or is called `choice`."""
    placed = (
        one for one in _parameters_of(own) if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)
    )
    first = next(placed, None)
    return first is not None and (first.default is first.empty or first.name == "choice")


def takes_carried(own: Callable[..., Any]) -> bool:
    """Whether a step takes a third argument: what is handed on from batch to batch."""
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in _parameters_of(own) if one.kind in placed and one.default is one.empty]
    return len(needed) == 3


def _file_of(part: object) -> Path | None:
    """The file with the source of a function, class or instance; None if typed into a session."""
    part = part.func if isinstance(part, partial) else part
    source = part if inspect.isroutine(part) or inspect.isclass(part) else type(part)
    try:
        file = inspect.getsourcefile(inspect.unwrap(source))
    except (TypeError, OSError):  # OSError: a class that was typed in
        return None
    return Path(file) if file and Path(file).is_file() else None


def _instructions(part: object) -> bytes:
    """What a function or the functions of a class do, wherever and in whichever cell they stand."""
    part = part.func if isinstance(part, partial) else part
    if isinstance(part, CodeType):
        inner = b"".join(map(_instructions, part.co_consts))
        return part.co_code + repr(part.co_names).encode() + inner
    if inspect.isfunction(part):
        return _instructions(part.__code__)
    if not inspect.isclass(part):
        return repr(part).encode()
    codes = (getattr(one, "__code__", None) for one in vars(part).values())
    return b"".join(_instructions(one) for one in codes if one is not None)


def line_of(part: object) -> str:
    """`folder/file.py:12`, where a function of the user's begins; empty for one that is not hers."""
    part = part.func if isinstance(part, partial) else part
    code = getattr(inspect.unwrap(part) if callable(part) else part, "__code__", None)
    if not isinstance(code, CodeType) or not is_own(code.co_filename):
        return ""
    is_hers = not library_of(code.co_filename) and Path(code.co_filename).is_file()
    return f"{code.co_filename}:{code.co_firstlineno}" if is_hers else ""


class Scale:
    """Pixels 0…255 to (pixel / 255 - mean) / std, as one multiply and one add."""

    def __init__(self, mean: float, std: float) -> None:
        self.mean, self.std = mean, std
        self._factor = 1 / (255 * std)
        self._shift = -mean / std

    def __call__(self, inputs: Tensor) -> Tensor:
        return inputs.to(torch.float32).mul_(self._factor).add_(self._shift)
