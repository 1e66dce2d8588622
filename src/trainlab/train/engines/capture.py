"""Fingerprints of what a model keeps between steps, to tell whether a step has changed it."""

import copy
import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from trainlab.train.engines.engine import Unsuited, reason_of
from trainlab.train.engines.vectorized import Draw, DropoutRecorder, Stacked
from trainlab.train.metering import per_sample
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import check_gradient, check_mean
from trainlab.workloads.user_code import BACKWARD, LOSS, MODEL, PREPARE, Running

TORCH_OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
MOST_ITEMS = 1000
MOST_NUMBERS = 1 << 20
DEEPEST = 4


def is_plain(value: Any) -> bool:
    """Whether a value says all there is to it when it is compared."""
    if isinstance(value, tuple | list | frozenset | set):
        return len(value) < MOST_ITEMS and all(map(is_plain, value))
    if isinstance(value, dict):
        return len(value) < MOST_ITEMS and all(map(is_plain, value.values()))
    return isinstance(value, PLAIN)


def attributes_of(model: nn.Module) -> dict[str, Any]:
    """What the modules keep in Python beside parameters and buffers, a counter say, as far as it shows."""
    return {
        f"{path}.{name}".lstrip("."): fingerprint(value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in TORCH_OWN
    }


def state_of(part: Any, *, with_buffers: bool) -> dict[str, Any]:
    """Of a model, a loss or a function: what its attributes hold, by name."""
    if not isinstance(part, nn.Module):
        return {"": fingerprint(part)}
    attributes = attributes_of(part) | {
        f"{path}.training": module.training for path, module in part.named_modules()
    }
    tensors = dict(part.named_parameters()) | (dict(part.named_buffers()) if with_buffers else {})
    # The version too: an average of the weights is what they are until these have moved.
    return attributes | {name: (one._version, _numbers(one)) for name, one in tensors.items()}


def fingerprint(value: Any, depth: int = 0) -> Any:
    """Equal for a value that did not change, as far as one can tell from outside."""
    if isinstance(value, PLAIN):
        return value if value == value else repr(value)  # what is no number equals nothing
    if depth > DEEPEST:
        return id(value)
    if isinstance(value, Tensor):
        return id(value), value._version, _numbers(value)
    if isinstance(value, nn.Module):
        return id(value)
    if isinstance(value, list | tuple | deque | set | frozenset) and len(value) < MOST_ITEMS:
        return type(value).__name__, tuple(fingerprint(one, depth + 1) for one in value)
    if isinstance(value, dict) and len(value) < MOST_ITEMS:
        return tuple((str(key), fingerprint(one, depth + 1)) for key, one in value.items())
    if (drawn := _random_state(value)) is not None:
        return id(value), drawn
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes() if value.nbytes < MOST_NUMBERS else value.shape
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and not isinstance(value, type) and len(own) < MOST_ITEMS:
        return id(value), tuple((name, fingerprint(one, depth + 1)) for name, one in own.items())
    return id(value)


def _random_state(value: Any) -> str | None:
    """Of what gives another number each time."""
    if isinstance(value, count):
        return repr(value)
    if isinstance(value, random.SystemRandom):
        return None  # it has none
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes().hex()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    return str(value.getstate()) if isinstance(value, random.Random) else None


def _numbers(tensor: Tensor) -> Any:
    """What the numbers add up to, where they are not too many."""
    if tensor.layout != torch.strided or not tensor.numel() or tensor.is_complex():
        return tuple(tensor.shape)
    numbers = tensor.detach().double()
    return float(numbers.sum()).hex(), float(numbers.abs().sum()).hex()


# What of a model keeps its step from being a program, as far as one can tell before it runs.

REAL = (torch.float32, torch.float64)
"""Types of parameters whose updates are computed as torch computes them."""


def check_model(model: nn.Module) -> None:
    """Raises for hooks that would not run, tensors that share memory, and numbers of another kind."""
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise Unsuited("not_hooked", what=name)
        if parameter.requires_grad and parameter.dtype not in REAL:
            raise Unsuited("not_real", what=name, dtype=str(parameter.dtype).removeprefix("torch."))
    _check_apart(model)
    _check_train(model)


def _check_train(model: nn.Module) -> None:
    """Raises where being put into training mode changes more than that: it is done once more often here."""
    if all(type(one).train is nn.Module.train for one in model.modules()):
        return
    try:
        tried = copy.deepcopy(model).train()
    except Exception as error:
        raise Unsuited("not_copied") from error
    before = state_of(tried, with_buffers=True)
    if state_of(tried.train(), with_buffers=True) != before:
        raise Unsuited("not_stateless", what="train()")


def _check_apart(model: nn.Module) -> None:
    """Views of one piece of memory would come apart when each gets its place among the others'."""
    named = [*model.named_parameters(), *model.named_buffers(remove_duplicate=False)]
    spans = sorted((tensor.data_ptr(), *_end_and_name(name, tensor)) for name, tensor in named)
    end = 0
    for start, stop, name in spans:
        if start < end and stop > start:
            raise Unsuited("not_apart", what=name)
        end = max(end, stop)


def _end_and_name(name: str, tensor: Tensor) -> tuple[int, str]:
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    num_bytes = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return tensor.data_ptr() + num_bytes, name


def check_alike(models: Sequence[nn.Module], *, have_same_settings: bool) -> None:
    """Raises where the models of lanes differ in more than their numbers and the probability of dropout,
    since the modules of the first run for all."""
    first = _shape_of(models[0], have_same_settings=have_same_settings)
    for model in models[1:]:
        if _shape_of(model, have_same_settings=have_same_settings) != first:
            raise Unsuited("not_alike")


def _shape_of(model: nn.Module, *, have_same_settings: bool) -> list[object]:
    """All that one can tell of a model but its numbers."""
    found: list[object] = [
        (name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    for path, module in model.named_modules():
        found.append((path, type(module)))
        for name, value in vars(module).items():
            if name in TORCH_OWN or (name == "p" and isinstance(module, _DropoutNd)):
                continue
            if is_plain(value):
                found.append((path, name, value))
            elif isinstance(value, Tensor | np.ndarray):
                # No lane of its own: the first trial's would serve them all.
                found.append((path, name, _content(value)))
            elif not have_same_settings and not isinstance(value, Tensor | nn.Module):
                raise Unsuited("not_alike")  # what it holds cannot be compared
    return found


def _content(value: "Tensor | np.ndarray[Any, Any]") -> tuple[object, ...]:
    """Equal where the numbers are."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()


# Rehearsal: one step run from Python before it is made into a program, to learn what it does.

Part = TypeVar("Part")


class _ValuesRead(TorchDispatchMode):
    """Refuses a step that reads a number from a tensor: a replay would not read it again."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_read = False
        """The step may have caught what was raised."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.has_read = True
            raise Unsuited("not_blind")
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Rehearsal:
    """What a step gave and did."""

    loss: float
    gradients: Mapping[str, Tensor]
    """Of the parameters that get one."""
    draws: tuple[Draw, ...]


def rehearse(
    setup: Setup,
    rows: Tensor,
    watching: AbstractContextManager[None] | None = None,
    *,
    with_metrics: bool = True,
) -> Rehearsal:
    """One step of the first epoch on these rows of the data, by a copy of the model.

    `watching` is entered around the model and the loss; the model itself is then run, whose layers it
    knows, and its buffers are changed.
    """
    batches, workload = setup.split_batches, setup.workload
    model = (_copy_of(setup.model) if watching is None else setup.model).train()
    loss_of, prepare = _copy_of(setup.loss), _copy_of(workload.prepare)
    dropout, reading = DropoutRecorder(), _ValuesRead()
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    buffers = dict(model.named_buffers())
    with (
        seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device),
        _unchanged((model, loss_of, prepare), setup.device),
    ):
        inputs, targets = batches.gather(rows)
        with PREPARE:
            inputs = prepare(inputs)
        with setup.autocast(), dropout, watching or reading:
            with MODEL:
                outputs = model(inputs)
            if not isinstance(outputs, Tensor):
                raise Unsuited("not_one_output", what=type(outputs).__name__)
            with LOSS:
                loss = loss_of(outputs, targets)
        check_mean(loss)
        check_gradient(loss, "loss")
        for name, metric in workload.sample_metrics.items() if with_metrics else ():
            with Running(f"metrics.{name}"):
                values = metric(outputs.detach(), targets)
            per_sample(name, values, len(targets))
        with BACKWARD:
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(parameters.values()), allow_unused=True
            )
    if reading.has_read:
        raise Unsuited("not_blind")
    for name, buffer in model.named_buffers():
        if buffers.get(name) is not buffer:
            raise Unsuited("not_stateless", what=name)
    gradients = {
        name: gradient
        for name, gradient in zip(parameters, found, strict=True)
        if gradient is not None
    }
    if any(gradient.layout != torch.strided for gradient in gradients.values()):
        raise Unsuited("not_dense")
    if not gradients:
        raise Unsuited("not_learning")
    return Rehearsal(float(loss.detach()), gradients, tuple(dropout.draws))


def _copy_of(part: Part) -> Part:
    try:
        return copy.deepcopy(part)
    except Exception as error:
        raise Unsuited("not_copied") from error


@contextmanager
def _unchanged(parts: Sequence[Any], device: torch.device) -> Iterator[None]:
    """Raises where this block changed what these keep, or drew random numbers on the host."""
    before, drawn = _states_of(parts), _host_draws(device)
    yield
    for kept, now, part in zip(before, _states_of(parts), parts, strict=True):
        if (changed := _difference(kept, now)) is not None:
            raise Unsuited("not_stateless", what=changed or type(part).__name__)
    if drawn != _host_draws(device):
        raise Unsuited("not_drawn_by_torch")


def _states_of(parts: Sequence[Any]) -> list[dict[str, Any]]:
    """The model first: its buffers are part of the program, those of a loss are not."""
    return [state_of(part, with_buffers=number > 0) for number, part in enumerate(parts)]


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    names = [name for name in after if name not in before or before[name] != after[name]]
    return names[0] if names else next((name for name in before if name not in after), None)


def _host_draws(device: torch.device) -> tuple[Any, ...]:
    """The states of the host's random numbers that a replay would not advance."""
    numpy_state = np.random.get_state()
    assert isinstance(numpy_state, tuple)
    of_torch = torch.get_rng_state().numpy().tobytes() if device.type != "cpu" else b""
    return random.getstate(), numpy_state[1].tobytes(), numpy_state[2], of_torch


# Whether the first step of a program is the step that was rehearsed.

LOSS_WITHIN = {"fp32": 1e-3, "bf16": 3e-2}
GRADIENT_WITHIN = {"fp32": 2e-2, "bf16": 2e-1}
"""How far the first step may be from the same step run by eager, relative; rounding is far below."""


def check_agreement(
    losses: Tensor,
    gradients: Tensor,
    rehearsed: Sequence[Rehearsal],
    stacked: Stacked,
    precision: str,
) -> None:
    """Refuses losses (one per trial) and gradients (a row per trial) that are not the rehearsed ones.

    A trial whose rehearsal gave numbers that are not finite has nothing to be compared with.
    """
    expected = torch.stack([_as_row(stacked, one) for one in rehearsed])
    reference = torch.tensor([one.loss for one in rehearsed], dtype=torch.float64)
    off = (losses.double().cpu() - reference).abs() / reference.abs().clamp_min(1e-2)
    apart = (gradients - expected).norm(dim=1) / expected.norm(dim=1).clamp_min(1e-12)
    usual = reference.isfinite() & expected.norm(dim=1).isfinite().cpu()
    too_far = (off > LOSS_WITHIN[precision]) | (apart.cpu() > GRADIENT_WITHIN[precision])
    too_far |= ~(off.isfinite() & apart.cpu().isfinite())
    if bool((too_far & usual).any()):
        raise Unsuited("not_the_same")


def _as_row(stacked: Stacked, one: Rehearsal) -> Tensor:
    """The gradients of one trial, arranged as a row."""
    row = torch.zeros_like(stacked.rows[0])
    for name, place in stacked.places.items():
        row[place] = one.gradients[name].reshape(-1)
    return row


# Runs a step without arguments many times: by a CUDA graph on a GPU, by calling it elsewhere.

WARMUP_STEPS = 3
"""Before a graph is captured: libraries choose their algorithms and take their memory."""


class Repeated:
    """A step that can be run many times; on a GPU it is captured with its first run."""

    def __init__(
        self,
        step: Callable[[], None],
        device: torch.device,
        changes: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        """`changes` is all that a step changes, `generators` are those it draws from."""
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = _captured(step, device, changes, generators)

    def run(self, times: int) -> None:
        """So many steps; on a GPU they are queued, not done."""
        repeat = self._step if self._graph is None else self._graph.replay
        for _ in range(times):
            repeat()


def _captured(
    step: Callable[[], None],
    device: torch.device,
    changes: Sequence[Tensor],
    generators: Sequence[torch.Generator],
) -> torch.cuda.CUDAGraph:
    with torch.no_grad():
        kept = [tensor.clone() for tensor in changes]
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARMUP_STEPS):
                step()
                restore(changes, kept)  # an epoch may have fewer steps
        torch.cuda.current_stream(device).wait_stream(aside)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        _renew_generator(device)
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise Unsuited("not_capturable", reason=reason_of(error)) from error
    finally:
        restore(changes, kept)
    return graph


def _renew_generator(device: torch.device) -> None:
    """A capture that failed leaves the default generator believing that it is still being captured."""
    default = torch.cuda.default_generators[device.index or torch.cuda.current_device()]
    default.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())


def restore(tensors: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    """Gives them the numbers that were kept."""
    with torch.no_grad():
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.copy_(before)
