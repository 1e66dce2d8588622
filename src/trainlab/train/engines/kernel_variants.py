"""Kernel variants: other code than torch's for layers on a CPU, used where it was measured to be faster.

torch hands convolutions to oneDNN, whose gradients can take two or three times as long as a convolution of
the gradient, or as one matrix product. Linear layers are multiplied by the transposed weight, which some
matrix libraries are slow with, and most are slow where a factor is a single column. Which variant is
faster depends on CPU and shape. Two variants round differently: so the first measurement is kept in the
autotune cache and decides for all later trials, and the same trial gives the same losses again.
"""

import copy
import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab.errors import RecordError, said_by
from trainlab.machine.host import cache_folder, cpu_model, usable_vcpus
from trainlab.record.files import new_part, read_json, writing
from trainlab.record.schema import Note, note
from trainlab.train.opaque import opaque_names
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup

aten = torch.ops.aten
Padding = tuple[int, int]
Work = Callable[[], object]
Parts = Mapping[str, Mapping[str, Callable[..., Tensor]]]
"""The variants by part (`forward`, `grad_input`, `grad_weight`) and name; torch's among them."""

FORMAT = 3
"""Of the autotune cache. Raised when variants are added or changed: what was measured no longer counts.

1: 2026-11-16, first. 2: 2026-11-17, gradients of the weights of linear layers. 3: 2026-11-18, one file.
"""
TORCH = "torch"
GAIN = 0.95
"""Another variant than torch's is taken where it needs at most this share of torch's time."""
FAR_SLOWER = 1.5
"""A variant whose first call takes so many times the fastest's is not measured further."""
BUDGET_S = 0.05
"""For all further calls of one variant."""
FEWEST, MOST = 3, 20
"""Calls that are measured of a variant."""
AS_EXACT = 1e-4
"""A variant further from torch's than this share of the largest value is not used."""
OVERHEAD_MS = 0.05
"""What calling a function of ours costs more than calling torch's; variants must gain more than that."""
MOST_SAMPLES = 64
"""Of the batch that layers are measured with; more take longer and change the order little."""


class Choice(NamedTuple):
    """The variants that one layer is computed by."""

    forward: str = TORCH
    grad_input: str = TORCH
    grad_weight: str = TORCH


ALL_TORCH = Choice()


def _torch_gradient(
    which: int, gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding
) -> Tensor:
    """Of the input (0) or the weight (1) of a convolution."""
    mask = [which == 0, which == 1, False]
    given = gradient, x, weight, [len(weight)], [1, 1], padding, [1, 1], False, [0, 0], 1, mask
    return aten.convolution_backward(*given)[which]  # type: ignore[no-any-return]


def _columns_gradient(
    which: int, gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding
) -> Tensor:
    """A matrix product per sample: what torch does without oneDNN."""
    given = gradient, x, weight, weight.shape[2:], [1, 1], padding
    mask = [which == 0, which == 1, False]
    return aten._slow_conv2d_backward(*given, output_mask=mask)[which]  # type: ignore[no-any-return]


def _columns_forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding) -> Tensor:
    """Each sample's patches as columns of a matrix."""
    given = x, weight, weight.shape[2:], bias, [1, 1], padding
    return aten._slow_conv2d_forward(*given)  # type: ignore[no-any-return]


def _input_by_convolution(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """The gradient, convolved with the weights turned by half a turn, channels exchanged."""
    rows, columns = (size - 1 - pad for size, pad in zip(weight.shape[2:], padding, strict=True))
    turned = weight.flip(2, 3).transpose(0, 1).contiguous()
    return F.conv2d(gradient, turned, padding=(rows, columns))


def _weight_by_product(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """One matrix product over all positions of all samples."""
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
    return (flat @ patches.t()).view_as(weight)


def _linear_exchanged(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The transposed product of the factors in the other order."""
    product = torch.mm(weight, x.t()).t().contiguous()
    return product if bias is None else product.add_(bias)


def _linear_copied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """With a copy of the weight that lies transposed in memory."""
    turned = weight.t().contiguous()
    return torch.mm(x, turned) if bias is None else torch.addmm(bias, x, turned)


CONVOLUTION: Parts = {
    "forward": {
        TORCH: lambda x, weight, bias, padding: F.conv2d(x, weight, bias, padding=padding),
        "columns": _columns_forward,
    },
    "grad_input": {
        TORCH: partial(_torch_gradient, 0),
        "convolution": _input_by_convolution,
        "columns": partial(_columns_gradient, 0),
    },
    "grad_weight": {
        TORCH: partial(_torch_gradient, 1),
        "product": _weight_by_product,
        "columns": partial(_columns_gradient, 1),
    },
}
LINEAR: Parts = {
    "forward": {TORCH: F.linear, "exchanged": _linear_exchanged, "copied": _linear_copied},
    "grad_input": {TORCH: lambda gradient, x, weight: gradient @ weight},
    "grad_weight": {
        TORCH: lambda gradient, x, weight: gradient.t() @ x,
        # Of a single sample each number is one product, which matrix libraries take far longer for.
        "of_one": lambda g, x, weight: g.t() * x if len(x) == 1 else g.t() @ x,
    },
}


class TunedLayer(torch.autograd.Function):
    """A layer computed by chosen variants. A gradient that is to be differentiated again is torch's."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Any, more: Any, parts: Parts, choice: Choice
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.more, ctx.parts, ctx.choice = more, parts, choice
        return parts["forward"][choice.forward](x, weight, bias, *more)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        choice = ALL_TORCH if torch.is_grad_enabled() else ctx.choice
        parts, needed, gradient = ctx.parts, ctx.needs_input_grad, gradient.contiguous()
        given = gradient, x, weight, *ctx.more
        return (
            parts["grad_input"][choice.grad_input](*given) if needed[0] else None,
            parts["grad_weight"][choice.grad_weight](*given) if needed[1] else None,
            gradient.sum([0, *range(2, gradient.dim())]) if needed[2] else None,
            None,
            None,
            None,
        )


@dataclass(frozen=True)
class VariantKind:
    """How layers of one class are tuned."""

    name: str
    parts: Parts
    dims: int
    """Dimensions of an input."""
    is_usual: Callable[[Any], bool]
    """Whether the variants compute what such a layer does."""
    more: Callable[[Any], tuple[Any, ...]]
    """What a variant is given beside weight and bias."""


KINDS: dict[type[nn.Module], VariantKind] = {
    nn.Conv2d: VariantKind(
        "convolution",
        CONVOLUTION,
        4,
        lambda layer: (
            layer.padding_mode == "zeros"
            and layer.stride == layer.dilation == (1, 1)
            and layer.groups == 1
            and not isinstance(layer.padding, str)
            and all(pad < size for pad, size in zip(layer.padding, layer.kernel_size, strict=True))
        ),
        lambda layer: (tuple(layer.padding),),
    ),
    nn.Linear: VariantKind("linear", LINEAR, 2, lambda layer: True, lambda layer: ()),
}


def kind_of(layer: nn.Module) -> VariantKind | None:
    """None for a layer that cannot be tuned: of another class, or not called as torch's class says."""
    kind = KINDS.get(type(layer))
    if kind is None or "forward" in vars(layer) or not is_plain(layer.weight):
        return None
    return kind if kind.is_usual(layer) else None


def is_plain(tensor: Any) -> bool:
    """float32 in the CPU's memory, in torch's usual order."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
    )


class TunedModel:
    """Calls the model. Before and after the call its layers are as ever: copies, files of weights and other
    callers see nothing of it."""

    def __init__(
        self, model: nn.Module, choices: Mapping[str, tuple[tuple[int, ...], Mapping[int, Choice]]]
    ) -> None:
        """`choices`: by layer, the shape of one sample and the variants for so many of them."""
        self._model = model
        layers = dict(model.named_modules())
        self._forwards = [
            (layers[name].__dict__, MethodType(_TunedForward(shape, by_size), layers[name]))
            for name, (shape, by_size) in choices.items()
        ]

    def __call__(self, inputs: Any) -> Any:
        for attributes, forward in self._forwards:
            attributes["forward"] = forward
        try:
            return self._model(inputs)
        finally:
            for attributes, _ in self._forwards:
                attributes.pop("forward", None)


class _TunedForward:
    """The `forward` of a layer; torch's for an input that the variants were not measured for."""

    def __init__(self, shape: tuple[int, ...], by_size: Mapping[int, Choice]) -> None:
        self._shape, self._by_size = shape, sorted(by_size.items(), reverse=True)

    def __call__(self, layer: nn.Module, x: Tensor) -> Tensor:
        fits = x.shape[1:] == self._shape and is_plain(x) and is_plain(layer.weight)
        choice = self._choice_for(len(x)) if fits else ALL_TORCH
        # Inside a transform of `torch.func` only torch's own operators can be taken.
        is_transforming = torch._C._functorch.peek_interpreter_stack() is not None
        if choice == ALL_TORCH or is_transforming or torch.is_autocast_enabled("cpu"):
            return type(layer).forward(layer, x)  # type: ignore[no-any-return]
        kind = KINDS[type(layer)]
        given = x, layer.weight, layer.bias, kind.more(layer), kind.parts, choice
        return TunedLayer.apply(*given)  # type: ignore[no-untyped-call,no-any-return]

    def _choice_for(self, size: int) -> Choice:
        """That of the largest number measured that is not above this one, else of the smallest."""
        return next((one for least, one in self._by_size if least <= size), self._by_size[-1][1])


def tune_model(setup: Setup) -> Callable[[Any], Any]:
    """The model, or a way to call it in which its layers are computed faster."""
    if not is_on_cpu(setup) or setup.settings.precision != "fp32" or opaque_names(setup.model):
        return setup.model
    choices = {}
    try:
        for name, call in _sampled_calls(setup).items():
            by_size = _choices_by_size(setup, name, *call)
            if set(by_size.values()) != {ALL_TORCH}:
                choices[name] = call[0], by_size
    except RecordError as error:
        add_note(setup, note("tuned_not_kept", error=str(error)))
        choices = {}
    layers = {
        name: {str(size): one._asdict() for size, one in by_size.items()}
        for name, (_, by_size) in choices.items()
    }
    record_choice(setup, "layers", layers)
    return TunedModel(setup.model, choices) if choices else setup.model


def _sampled_calls(setup: Setup) -> dict[str, tuple[tuple[int, ...], bool]]:
    """How the layers of the model are called; none, with a note, where a copy of it does not run."""
    batches = setup.forward_batches
    rows = torch.arange(min(batches.batch_size, batches.num_samples, MOST_SAMPLES))
    try:
        with seeded(setup.trial.seed, "tuned"):
            return sample_calls(setup.model, setup.workload.prepare(batches.gather(rows)[0]))
    except Exception as error:  # noqa: BLE001  the user's code, which may raise anything
        kind, reason = type(error).__name__, said_by(error)
        add_note(setup, note("tuned_model_failed", kind=kind, reason=reason))
        return {}


def sample_calls(model: nn.Module, inputs: Any) -> dict[str, tuple[tuple[int, ...], bool]]:
    """The first call of each layer that can be tuned, by its name: the shape of a sample, and whether the
    input needs a gradient. Runs a copy of the model, so that nothing of the trial is touched."""
    if not any(map(kind_of, model.modules())):
        return {}
    copied = copy.deepcopy(model).eval()
    calls: dict[str, tuple[tuple[int, ...], bool]] = {}

    def see(name: str, dims: int, layer: nn.Module, given: tuple[Any, ...]) -> None:
        x: Any = given[0] if given else None
        if name not in calls and is_plain(x) and x.dim() == dims:
            calls[name] = tuple(x.shape[1:]), x.requires_grad

    for name, module in copied.named_modules():
        if (kind := kind_of(module)) is not None:
            module.register_forward_pre_hook(partial(see, name, kind.dims))
    with torch.enable_grad():
        copied(inputs)
    return calls


def _choices_by_size(
    setup: Setup, name: str, shape: tuple[int, ...], needs_grad_input: bool
) -> dict[int, Choice]:
    """For the batches of training and of the test."""
    layer = setup.model.get_submodule(name)
    kind = kind_of(layer)
    assert kind is not None, "the copy had a layer of another kind"
    sizes = {
        min(batches.batch_size, batches.num_samples, MOST_SAMPLES)
        for batches in (setup.forward_batches, setup.test_batches)
    }
    found = {}
    for size in sorted(sizes):
        decide = partial(fastest_variants, kind, layer, (size, *shape), needs_grad_input)
        names = cached_choice(kind.name, (size, shape, needs_grad_input, str(layer)), decide)
        known = {part: names[part] for part in kind.parts if names.get(part) in kind.parts[part]}
        found[size] = Choice(**known)
    return found


def fastest_variants(
    kind: VariantKind, layer: Any, shape: tuple[int, ...], needs_grad_input: bool
) -> dict[str, str]:
    """The names of a `Choice`, measured for such an input with numbers that are not the trial's."""
    draw = torch.Generator().manual_seed(0)
    x, more, names, gained_ms = torch.randn(shape, generator=draw), kind.more(layer), {}, 0.0
    with torch.no_grad():
        output = kind.parts["forward"][TORCH](x, layer.weight, layer.bias, *more)
        gradient = torch.randn(output.shape, generator=draw)
        for part, variants in kind.parts.items():
            if len(variants) == 1 or (part == "grad_input" and not needs_grad_input):
                continue
            given = (
                (x, layer.weight, layer.bias) if part == "forward" else (gradient, x, layer.weight)
            )
            expected = variants[TORCH](*given, *more)
            works: dict[str, Work] = {
                name: partial(variant, *given, *more)
                for name, variant in variants.items()
                if name == TORCH or _agrees(partial(variant, *given, *more), expected)
            }
            names[part], ms = faster(works)
            gained_ms += ms[TORCH] - ms[names[part]]
    return (Choice(**names) if gained_ms > OVERHEAD_MS else ALL_TORCH)._asdict()


def _agrees(variant: Callable[[], Tensor], expected: Tensor) -> bool:
    """False also where this build of torch lacks what the variant calls."""
    try:
        found = variant()
    except (RuntimeError, AttributeError):
        return False
    return bool((found - expected).abs().max() <= AS_EXACT * expected.abs().max())


def faster(works: Mapping[str, Work]) -> tuple[str, dict[str, float]]:
    """The fastest of some variants by name, torch's unless another clearly is; and the ms of each. Called
    in turn, so that what else the machine does hits all alike."""
    first_s = {name: (timed_s(work), timed_s(work))[1] for name, work in works.items()}
    limit_s = FAR_SLOWER * min(first_s.values())
    close = {name: works[name] for name, s in first_s.items() if s <= limit_s or name == TORCH}
    times_s: dict[str, list[float]] = {name: [] for name in close}
    longest_s = max(first_s[name] for name in close)
    for _ in range(max(FEWEST, min(MOST, int(BUDGET_S / longest_s)))):
        for name, work in close.items():
            times_s[name].append(timed_s(work))
    ms = {name: 1e3 * statistics.median(found) for name, found in times_s.items()}
    best = min(ms, key=lambda name: ms[name])
    return (best if ms[best] <= GAIN * ms[TORCH] else TORCH), ms


def timed_s(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cached_choice(
    subject: str, facts: object, decide: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """What was decided for these facts on this machine, or is now; the first to decide, decides for all.

    RecordError where it cannot be kept.
    """
    machine = (FORMAT, cpu_model(), usable_vcpus(), torch.__version__, torch.get_num_threads())
    key = hashlib.sha256(repr((machine, facts)).encode()).hexdigest()[:16]
    path = cache_folder() / "choices" / f"{subject}-{key}.json"
    if (known := _read(path)) is not None:
        return known
    record = {"format": FORMAT, "facts": repr(facts), "choice": dict(decide())}
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = new_part(path)
        try:
            part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            os.link(part, path)  # fails where another process was first: its choice stays
        except FileExistsError:
            if _read(path) is None:  # a file that is no choice
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    if (known := _read(path)) is None:
        raise RecordError(f"{path}: is not a kept choice; delete it")
    return known


def _read(path: Path) -> dict[str, Any] | None:
    try:
        known = read_json(path)
    except RecordError:
        return None
    choice = known.get("choice")
    return choice if known.get("format") == FORMAT and isinstance(choice, dict) else None


def is_on_cpu(setup: Setup) -> bool:
    """Noted where it is not."""
    if setup.device.type != "cpu":
        add_note(setup, note("tuned_cpu_only", device=str(setup.device)))
    return setup.device.type == "cpu"


def record_choice(setup: Setup, part: str, choice: object) -> None:
    """What was decided for a part of the trial; ends up in `resolved.tuned`."""
    setup.engine_facts["tuned"] = {**setup.engine_facts.get("tuned", {}), part: choice}


def add_note(setup: Setup, one: Note) -> None:
    """Once."""
    if one not in setup.notes:
        setup.notes.append(one)
