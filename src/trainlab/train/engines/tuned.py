"""tuned: the eager loop on the CPU, with other code than torch's where that is faster.

Updates of the optimizers that torch has no fused one for on a CPU are compiled: `update.cpp`, once per
user and machine. Convolutions go to oneDNN, whose gradients can take two or three times as long as a
convolution of the gradient, or as one matrix product; linear layers are multiplied by the transposed
weight, which some matrix libraries are slow with. What is faster depends on CPU and shape, so it is
measured. Two variants round differently: so the first measurement is kept in the autotune cache and
decides for all later trials, and the same trial gives the same losses again.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import statistics
import struct
import subprocess
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from trainlab.errors import RecordError
from trainlab.machine.host import cache_folder, cpu_model, private, private_folder, usable_vcpus
from trainlab.record.files import make_folder, new_part, replacing, writing
from trainlab.train.callbacks import Moments
from trainlab.train.engines.eager import EagerEngine, EagerSession, Step, make_training_step
from trainlab.train.engines.engine import Member, Unsuited
from trainlab.train.opaque import opaque_names
from trainlab.train.setup import Setup
from trainlab.train.step import CallModel
from trainlab.train.updates import can_be_fused, make_optimizer

TORCH, NATIVE = "torch", "native"


class TunedEngine(EagerEngine):
    """Takes one trial at a time and shows every moment of it; results equal eager's to rounding."""

    name = "tuned"

    def open(self, group: Sequence[Member]) -> EagerSession:
        (member,) = group
        return EagerSession(member, self.training_step(member.setup, member.moments))

    def training_step(self, setup: Setup, moments: Moments) -> Step:
        if setup.own is not None:
            raise Unsuited("not_ours", what=setup.own)
        if setup.device.type != "cpu":
            setup.note_once("tuned_cpu_only", device=str(setup.device))
            return make_training_step(setup, moments)
        _tune_update(setup)
        return make_training_step(setup, moments, tuned_model(setup))


def _record(setup: Setup, part: str, choice: object) -> None:
    """What was decided for a part of the trial; ends up in `resolved.tuned`."""
    setup.engine_facts["tuned"] = {**setup.engine_facts.get("tuned", {}), part: choice}


# What is faster here: measured once and kept.

FORMAT = 4
"""Of the autotune cache. Raised when variants are added or changed: what was measured no longer counts."""
GAIN, LEAST_GAIN_S = 0.05, 5e-5
"""What another variant than torch's must save at least: a share of torch's time, and so much."""
BUDGET_S = 0.05
"""For all calls of one variant."""
FEWEST, MOST = 3, 20
"""Calls that are measured of a variant."""

Work = Callable[[], object]


def fastest(works: Mapping[str, Work]) -> str:
    """The fastest of some variants by name, torch's unless another clearly is. Called in turn, so that what
    else the machine does hits all alike."""
    for work in works.values():
        work()
    longest_s = max(map(_timed_s, works.values()))
    turns = max(FEWEST, min(MOST, int(BUDGET_S / longest_s)))
    rows = [[_timed_s(work) for work in works.values()] for _ in range(turns)]
    medians_s = dict(zip(works, map(statistics.median, zip(*rows, strict=True)), strict=True))
    best = min(medians_s, key=lambda name: medians_s[name])
    gained_s = medians_s[TORCH] - medians_s[best]
    return best if gained_s >= max(GAIN * medians_s[TORCH], LEAST_GAIN_S) else TORCH


def _timed_s(work: Work) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def kept_choice(facts: object, decide: Callable[[], str]) -> str:
    """What was decided for these facts on this machine, or is now; the first process to decide, decides for
    all. RecordError where it cannot be kept."""
    key = (FORMAT, _machine(), usable_vcpus(), torch.get_num_threads(), facts)
    path = cache_folder() / "choices" / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.txt"
    with writing(path):
        if not path.is_file():
            choice = decide()
            make_folder(path.parent)
            part = new_part(path)
            part.write_text(f"{choice}\n{facts!r}\n", encoding="utf-8")
            with suppress(FileExistsError):
                os.link(part, path)
            part.unlink()
        return path.read_text(encoding="utf-8").partition("\n")[0]


@cache
def _machine() -> tuple[str, ...]:
    return cpu_model(), platform.machine(), str(torch.__version__)


# Updates: compiled for the optimizers that torch has no fused one for on a CPU.

SOURCE = Path(__file__).with_name("update.cpp")
COMPILERS = ("c++", "g++", "clang++")
"""Tried in this order, after what the environment variable CXX names."""
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"),
    # A product and a sum are rounded apart, so that a result does not depend on how a loop was unrolled.
    "-ffp-contract=off",
    # Roots and choices as vector instructions; no result changes.
    *("-fno-math-errno", "-fno-trapping-math"),
)
COMPILE_TIMEOUT_S = 120
WORTH_COMPILING = 5e8
"""Updates times parameters from which compiling pays: it takes 2 to 3 s and saves 1 to 5 ns of each."""
STATES = {"adadelta": 2, "rmsprop": 3}
"""How many tensors torch's optimizer keeps of a parameter; update.cpp numbers its kinds in this order."""


def _tune_update(setup: Setup) -> None:
    """By compiled code. Not where torch has fused code, was asked for some of its own, or alone takes such
    parameters or what a scaler asks; where compiling would not pay; and where it cannot be done. Whether
    it was compiled before plays no part: the same trial must give the same losses again."""
    settings, model = setup.settings, setup.model
    if setup.has_optimizer:
        return
    _record(setup, "update", TORCH)
    trained = [one for one in model.parameters() if one.requires_grad]
    is_ours = settings.optimizer in STATES and settings.optimizer_code == "auto"
    is_usual = can_be_fused(model) and all(map(is_plain, trained)) and setup.scaler is None
    if not is_ours or not is_usual or torch.get_default_dtype() != torch.float32:
        return
    if setup.num_steps * sum(map(Tensor.numel, trained)) < WORTH_COMPILING:
        return
    compiler = find_compiler()
    if compiler is None:
        setup.note_once("tuned_no_compiler")
        return
    try:
        loaded = library(compiler)
    except RecordError as error:
        setup.note_once("tuned_not_kept", error=str(error))
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).splitlines()
        setup.note_once("tuned_compiler_failed", error=next(filter(str.strip, lines), ""))
    else:
        _record(setup, "update", NATIVE)
        of_torch = partial(native_class, kind=settings.optimizer, library=loaded)
        setup.use_optimizer(make_optimizer(settings, model, setup.device, of_torch))


def find_compiler() -> str | None:
    named = os.environ.get("CXX")
    return next(filter(None, map(shutil.which, (named,) if named else COMPILERS)), None)


def library(compiler: str) -> ctypes.CDLL:
    """The compiled code, kept where only this user can write, or compiled now. In its name is whatever the
    machine code may depend on: source, flags, compiler, CPU. It runs in torch's threads, where torch's
    OpenMP has GNU's interface; else it starts some of its own."""
    run = partial(subprocess.run, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    version = run([compiler, "--version"]).stdout
    facts = SOURCE.read_bytes(), FLAGS, compiler, version, _machine()
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    path = private_folder("native") / f"update-{digest}.so"
    if not path.is_file():
        with replacing(path) as part:
            run([compiler, *FLAGS, str(SOURCE), "-o", str(part)], check=True)
            part.chmod(0o700)
    loaded = ctypes.CDLL(str(private(path)))
    # Looked up in torch's library first, then in those that it was linked with: another package may have
    # brought another OpenMP, whose threads would stand in the way of torch's.
    with suppress(OSError, AttributeError):
        torchs = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        used = (torchs.GOMP_parallel, torchs.omp_get_thread_num, torchs.omp_get_num_threads)
        loaded.trainlab_use_threads(*(ctypes.cast(one, ctypes.c_void_p) for one in used))
    return loaded


OPTIONS = struct.Struct("5dq")
"""`Options` in update.cpp: lr, rho or alpha, eps, weight_decay, momentum, centered."""


class NativeStep(Optimizer):
    """torch's optimizer with its update in compiled code: one pass over memory instead of ten. State and
    options are torch's. Stands before torch's class among the bases."""

    library: ClassVar[ctypes.CDLL]
    kind: ClassVar[str]

    def step(self, closure: Any = None) -> Any:
        assert closure is None, "the loss is computed before the step"
        for group in self.param_groups:
            lists: list[list[Tensor]] = [[] for _ in range(3 + STATES[self.kind])]
            self._init_group(group, *lists)  # type: ignore[attr-defined]
            parameters, gradients, *states, steps = lists
            gradients = [
                one if is_plain(one) else torch.zeros_like(parameter).copy_(one)
                for parameter, one in zip(parameters, gradients, strict=True)
            ]
            # Seven numbers for each parameter: `Tensor` in update.cpp. A state that there is not is 0.
            numbers, states = array("q"), [*states, []][:3]
            for parameter, *others in zip_longest(parameters, gradients, *states, steps):
                numbers.append(parameter.data_ptr())
                numbers.extend(0 if one is None else one.data_ptr() for one in others)
                numbers.append(parameter.numel())
            options = OPTIONS.pack(
                float(group["lr"]),
                group["rho" if self.kind == "adadelta" else "alpha"],
                group["eps"],
                group["weight_decay"],
                group.get("momentum", 0.0),
                bool(group.get("centered", False)),
            )
            self.library.trainlab_update(
                [*STATES].index(self.kind),
                ctypes.c_void_p(numbers.buffer_info()[0]),
                ctypes.c_int64(len(parameters)),
                options,
                ctypes.c_int64(torch.get_num_threads()),
            )
            torch.autograd.graph.increment_version(parameters)


def native_class(torch_class: type[Optimizer], kind: str, library: ctypes.CDLL) -> type[Optimizer]:
    """torch's optimizer of that class, its update made by the library. Under torch's name: a profile then
    shows the same row for both."""
    members = {"library": library, "kind": kind}
    return type(torch_class.__name__, (NativeStep, torch_class), members)


def is_plain(tensor: Any) -> bool:
    """float32 one after the other in the CPU's memory: zeros that have none are torch's own affair."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype == torch.float32
        and tensor.is_cpu
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and (tensor.data_ptr() != 0 or tensor.numel() == 0)
    )


# Layers: their output or gradients computed by other means than torch's.

MOST_SAMPLES = 64
"""Of the batch that layers are measured with; more take longer and change the order little."""


class Convolution(torch.autograd.Function):
    """A convolution; `ours` says which of its gradients (`input`, `weight`) are computed as below."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Any, padding: tuple[int, int], ours: str
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding, ctx.ours = padding, ours
        return F.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), padding, gradient = ctx.saved_tensors, ctx.padding, gradient.contiguous()
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        mask = [of_x and "input" not in ctx.ours, of_weight and "weight" not in ctx.ours, False]
        given = gradient, x, weight, None, [1, 1], padding, [1, 1], False, [0, 0], 1, mask
        found = torch.ops.aten.convolution_backward(*given) if any(mask) else (None, None)
        by_x, by_weight = found[:2]
        if of_x and not mask[0]:
            # The gradient, convolved with the weights turned by half a turn, channels exchanged.
            turned = weight.flip(2, 3).transpose(0, 1).contiguous()
            rest = [size - 1 - pad for size, pad in zip(weight.shape[2:], padding, strict=True)]
            by_x = F.conv2d(gradient, turned, padding=rest)
        if of_weight and not mask[1]:
            # One matrix product over all positions of all samples.
            rows, columns = padding
            padded = F.pad(x, (columns, columns, rows, rows)) if any(padding) else x
            channels_out, channels_in, *kernel = weight.shape
            samples, _, *positions = gradient.shape
            by_sample, by_channel, by_row, by_column = padded.stride()
            patches = padded.as_strided(
                (channels_in, *kernel, samples, *positions),
                (by_channel, by_row, by_column, by_sample, by_row, by_column),
            ).reshape(weight[0].numel(), -1)
            flat = gradient.transpose(0, 1).reshape(channels_out, -1)
            by_weight = (flat @ patches.t()).view_as(weight)
        return by_x, by_weight, gradient.sum((0, 2, 3)) if of_bias else None, None, None


class Exchanged(torch.autograd.Function):
    """A linear layer as the transposed product of its factors in the other order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        product = torch.mm(weight, x.t()).t().contiguous()
        return product if bias is None else product.add_(bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (of_x, of_weight, of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            gradient @ weight if of_x else None,
            gradient.t() @ x if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


_nn: Any = torch._C._nn
CallLayer = Callable[[Any, Tensor], Tensor]


def _convolution(layer: Any, x: Tensor, ours: str) -> Tensor:
    given = x, layer.weight, layer.bias, tuple(layer.padding), ours
    return Convolution.apply(*given)  # type: ignore[no-untyped-call,no-any-return]


VARIANTS: Mapping[type, Mapping[str, CallLayer]] = {
    nn.Conv2d: {
        # Each sample's patches as columns of a matrix: what torch does without oneDNN.
        "columns": lambda layer, x: _nn.thnn_conv2d(
            x, layer.weight, layer.kernel_size, layer.bias, layer.stride, layer.padding
        ),
        **{w: partial(_convolution, ours=w) for w in ("input", "weight", "input, weight")},
    },
    nn.Linear: {"exchanged": lambda layer, x: Exchanged.apply(x, layer.weight, layer.bias)},  # type: ignore[no-untyped-call]
}


def has_variants(layer: Any) -> bool:
    """Whether the variants compute what such a layer does."""
    if type(layer) not in VARIANTS or "forward" in vars(layer):
        return False
    weight = layer._parameters.get("weight")  # none where it is computed in each call
    if not is_plain(weight) or any(one._backward_hooks for one in layer.parameters()):
        return False
    return type(layer) is nn.Linear or (
        layer.padding_mode == "zeros"
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and not isinstance(layer.padding, str)
        and all(pad < size for pad, size in zip(layer.padding, layer.kernel_size, strict=True))
    )


def tuned_model(setup: Setup) -> CallModel:
    """The model, or a way to call it in training in which its layers are computed faster."""
    model = setup.model
    layers = {name: layer for name, layer in model.named_modules() if has_variants(layer)}
    if setup.settings.precision != "fp32" or opaque_names(model) or not layers:
        return model

    def choose(name: str, x: Tensor) -> str:
        call = layers[name], (min(len(x), MOST_SAMPLES), *x.shape[1:]), x.requires_grad
        try:
            choice = kept_choice((str(call[0]), *call[1:]), partial(fastest_variant, *call))
        except RecordError as error:
            # What is measured anew in each run would change a trial's losses from run to run.
            setup.note_once("tuned_not_kept", error=str(error))
            return TORCH
        if choice != TORCH:
            _record(setup, "layers", {**setup.engine_facts["tuned"]["layers"], name: choice})
        return choice

    _record(setup, "layers", {})
    return calling(model, layers, choose)


def fastest_variant(layer: Any, shape: tuple[int, ...], needs_gradient: bool) -> str:
    """Measured forward and backward, for such an input with numbers that are not the trial's."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_(
        needs_gradient
    )
    leaves = [one for one in (x, *layer.parameters()) if one.requires_grad]

    def work(call: CallLayer) -> None:
        output = call(layer, x)
        torch.autograd.grad(output, leaves, output.detach())

    works = {TORCH: partial(work, type(layer).forward)}
    for name, call in VARIANTS[type(layer)].items() if leaves else ():
        if needs_gradient or "input" not in name:
            works[name] = partial(work, call)
    with torch.enable_grad():
        return fastest(works) if len(works) > 1 else TORCH


_saving_hooks = torch._C._autograd._top_saved_tensors_default_hooks


def calling(
    model: nn.Module, layers: Mapping[str, Any], choose: Callable[[str, Tensor], str]
) -> CallModel:
    """Calls the model. Before and after the call its layers are as ever: copies, files of weights and other
    callers see nothing of it. What a layer gets in its first call decides its variant: no call is made for
    that alone, which the user's code could count."""
    chosen: dict[str, tuple[CallLayer, tuple[int, ...]]] = {}
    """By layer, its variant and the shape of a sample."""

    def forward(name: str, layer: Any, x: Tensor) -> Tensor:
        """torch's for an input of another shape than the first, under autocast, inside a transform of
        `torch.func`, where only torch's own operators can be taken, and inside a checkpoint, which must
        find the same when it computes this once more."""
        is_changed = torch.is_autocast_enabled("cpu") or (
            torch._C._functorch.peek_interpreter_stack() is not None
            or _saving_hooks(True) is not None
        )
        of_torch: CallLayer = type(layer).forward
        if is_changed or not is_plain(x) or not is_plain(layer.weight):
            return of_torch(layer, x)
        if x.dim() != (2 if type(layer) is nn.Linear else 4):
            return of_torch(layer, x)
        if name not in chosen:
            of_torch(layer, x)  # raises where the input does not fit, as ever
            variant = VARIANTS[type(layer)].get(choose(name, x), of_torch)
            chosen[name] = variant, tuple(x.shape[1:])
        variant, shape = chosen[name]
        return variant(layer, x) if x.shape[1:] == shape else of_torch(layer, x)

    forwards = [(vars(layer), partial(forward, name, layer)) for name, layer in layers.items()]

    def call(inputs: Any) -> Any:
        for attributes, faster in forwards:
            attributes["forward"] = faster
        try:
            return model(inputs)
        finally:
            for attributes, _ in forwards:
                attributes.pop("forward", None)

    return call
