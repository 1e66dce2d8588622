"""Capture: a step that is run many times, by a CUDA graph on a GPU, and the checks before that.

A step is run from Python once, on a copy of the model, before it is made into a program (a dry step). A
model that keeps state of its own between steps, or draws random numbers elsewhere than from torch, would
do something else when it is replayed; it is found here, and so is a program whose first step is another.
"""

import copy
import io
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainlab.train.engines.engine import Unsuited, reason_of
from trainlab.train.engines.vectorized import Draw, DropoutCalls, Stacked
from trainlab.train.metering import per_sample
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import check_gradient, check_mean
from trainlab.workloads.user_code import BACKWARD, LOSS, MODEL, PREPARE, Running

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
TORCH_OWN = frozenset(vars(nn.Module()))
REAL = (torch.float32, torch.float64)
"""Types of parameters whose updates are computed as torch computes them."""
LOSS_WITHIN = {"fp32": 1e-3, "bf16": 3e-2}
GRADIENT_WITHIN = {"fp32": 2e-2, "bf16": 2e-1}
"""How far the first step may be from the same step run by eager, relative; rounding is far below."""
WARMUP_STEPS = 3
"""Before a graph is captured: libraries choose their algorithms and take their memory."""


def attributes_of(model: nn.Module) -> dict[str, Any]:
    """What the modules keep in Python beside parameters and buffers, a counter say, as far as it shows."""
    return {
        f"{path}.{name}".lstrip("."): _fingerprint(value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in TORCH_OWN
    }


def _fingerprint(value: Any) -> object:
    """Equal for a value that did not change, as far as one can tell from outside."""
    stream = io.BytesIO()
    try:
        _Fingerprint(stream).dump(value)
    except Exception:  # noqa: BLE001  whatever a thing that has no pickle raises
        return id(value)
    return stream.getvalue()


class _Fingerprint(pickle.Pickler):
    """Pickled, but for what is told by its identity: modules, functions, and tensors with their numbers."""

    def persistent_id(self, value: Any) -> object:
        if isinstance(value, Tensor):
            # The version too: an average of the weights is what they are until these have moved.
            numbers = value.detach().to(torch.complex128)
            return id(value), value._version, complex(numbers.sum()), float(numbers.abs().sum())
        return id(value) if isinstance(value, nn.Module | type | FunctionType) else None


def check_model(model: nn.Module) -> None:
    """Raises for hooks that would not run, tensors that share memory, numbers of another kind, and what is
    scripted: torch gives no hold on the parameters of its modules."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise Unsuited("not_capturable", reason="it is scripted")
    for name, module in model.named_modules():
        if any(getattr(module, kind) for kind in HOOKS):
            raise Unsuited("not_hooked", what=name or type(module).__name__)
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise Unsuited("not_hooked", what=name)
        if parameter.requires_grad and parameter.dtype not in REAL:
            raise Unsuited("not_real", what=name, dtype=str(parameter.dtype).removeprefix("torch."))
    # Views of one piece of memory would come apart when each gets its place among the others'.
    places: set[int] = set()
    for name, tensor in (*model.named_parameters(), *model.named_buffers(remove_duplicate=False)):
        if tensor.numel() and tensor.data_ptr() in places:
            raise Unsuited("not_apart", what=name)
        places.add(tensor.data_ptr())


class _ValuesRead(TorchDispatchMode):
    """Refuses a step that reads a number from a tensor: a replay would not read it again."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise Unsuited("not_blind")
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class DryStep:
    loss: float
    gradients: Mapping[str, Tensor]
    """Of the parameters that get one."""
    draws: tuple[Draw, ...]


def dry_step(
    setup: Setup, rows: Tensor, watching: AbstractContextManager[None] | None = None
) -> DryStep:
    """One step of the first epoch on these rows of the data, by a copy of the model; or, where `watching`
    is entered around model and loss, by the model itself, whose layers it knows: its buffers change."""
    workload, given = setup.workload, (setup.model, setup.loss, setup.workload.prepare)
    try:
        model, loss_of, prepare = copy.deepcopy(given) if watching is None else given
    except Exception as error:
        raise Unsuited("not_copied") from error
    model.train()
    dropout = DropoutCalls()
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    buffers = dict(model.named_buffers())
    with (
        seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device),
        _unchanged((model, loss_of, prepare), setup.device),
    ):
        inputs, targets = setup.split_batches.gather(rows)
        with PREPARE:
            inputs = prepare(inputs)
        with setup.autocast(), dropout, watching or _ValuesRead():  # type: ignore[no-untyped-call]
            with MODEL:
                outputs = model(inputs)
            if not isinstance(outputs, Tensor):
                raise Unsuited("not_one_output", what=type(outputs).__name__)
            with LOSS:
                loss = loss_of(outputs, targets)
        check_mean(loss)
        check_gradient(loss, "loss")
        for name, metric in workload.sample_metrics.items():
            with Running(f"metrics.{name}"):
                values = metric(outputs.detach(), targets)
            per_sample(name, values, len(targets))
        with BACKWARD:
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(parameters.values()), allow_unused=True
            )
    for name, buffer in model.named_buffers():
        if buffers.get(name) is not buffer:
            raise Unsuited("not_stateless", what=name)
    gradients = {n: one for n, one in zip(parameters, found, strict=True) if one is not None}
    if any(gradient.layout != torch.strided for gradient in gradients.values()):
        raise Unsuited("not_dense")
    if not gradients:
        raise Unsuited("not_learning")
    return DryStep(float(loss.detach()), gradients, tuple(dropout.draws))


@contextmanager
def _unchanged(parts: Sequence[Any], device: torch.device) -> Iterator[None]:
    """Raises where this block changed what these keep, or drew random numbers on the host."""

    def states() -> list[dict[str, Any]]:
        found = []
        for part in parts:
            if not isinstance(part, nn.Module):
                found.append({getattr(part, "__name__", type(part).__name__): _fingerprint(part)})
                continue
            # The model's buffers are part of the program, those of a loss are not.
            buffers = () if part is parts[0] else part.named_buffers()
            tensors = (*part.named_parameters(), *buffers)
            found.append(attributes_of(part) | {n: _fingerprint(one) for n, one in tensors})
        return found

    def draws() -> tuple[bytes, ...]:
        """Of the host, which a replay would not advance."""
        of_torch = torch.get_rng_state().numpy().tobytes() if device.type != "cpu" else b""
        return pickle.dumps(random.getstate()), pickle.dumps(np.random.get_state()), of_torch

    before, drawn = states(), draws()
    yield
    for kept, now in zip(before, states(), strict=True):
        changed = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
        if changed:
            raise Unsuited("not_stateless", what=changed[0])
    if drawn != draws():
        raise Unsuited("not_drawn_by_torch")


def check_agreement(
    losses: Tensor, gradients: Tensor, dry: Sequence[DryStep], stacked: Stacked, precision: str
) -> None:
    """Refuses losses (one per trial) and gradients (a row per trial) that are not those of the dry steps. A
    trial whose dry step gave numbers that are not finite has nothing to be compared with."""
    expected = torch.zeros_like(stacked.rows)
    for row, one in zip(expected, dry, strict=True):
        for name, place in stacked.places.items():
            row[place] = one.gradients[name].reshape(-1)
    reference = torch.tensor([one.loss for one in dry], dtype=torch.float64)
    off = (losses.double().cpu() - reference).abs() / reference.abs().clamp_min(1e-2)
    apart = ((gradients - expected).norm(dim=1) / expected.norm(dim=1).clamp_min(1e-12)).cpu()
    usual = reference.isfinite() & expected.norm(dim=1).isfinite().cpu()
    too_far = (off > LOSS_WITHIN[precision]) | (apart > GRADIENT_WITHIN[precision])
    too_far |= ~(off.isfinite() & apart.isfinite())
    if bool((too_far & usual).any()):
        raise Unsuited("not_the_same")


def repeated(
    step: Callable[[], None],
    device: torch.device,
    changes: Sequence[Tensor],
    generators: Sequence[torch.Generator] = (),
) -> Callable[[], None]:
    """A step that is run many times: on a GPU it is captured here, and each run of it queues the graph.
    `changes` is all that a step changes, `generators` are those it draws from."""
    if device.type != "cuda":
        return step
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
        # A capture that failed leaves the default generator believing that it is still being captured.
        default = torch.cuda.default_generators[device.index or torch.cuda.current_device()]
        default.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise Unsuited("not_capturable", reason=reason_of(error)) from error
    finally:
        restore(changes, kept)
    return graph.replay


def restore(tensors: Iterable[Tensor], kept: Iterable[Tensor]) -> None:
    with torch.no_grad():
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.copy_(before)
