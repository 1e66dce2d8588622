"""Models that torch runs in ways of its own, or that decide while they run."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainlab import Dataset
from zoo.specimen import Specimen, kind, points, splits

POINTS = Dataset("points", *splits(points))


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


def compiled(width: int = 16) -> Any:
    """By dynamo, without code generation."""
    return torch.compile(Net(width), backend="eager")


def scripted(width: int = 16) -> Any:
    return torch.jit.script(Net(width))


class Checkpointed(Net):
    """What the first layer gives is computed again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        hidden: Any = checkpoint(lambda x: torch.relu(self.first(x)), x, use_reentrant=False)
        return self.last(hidden)


class Sign(torch.autograd.Function):
    """The sign, with the gradient of a clipped identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class Binary(Net):
    """Its hidden units are on or off."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Sign.apply(self.first(x)))


class FakeQuantised(nn.Linear):
    """Weights and inputs are rounded to 8 bits going forward, and straight through going back."""

    def forward(self, x: Tensor) -> Tensor:
        rounded = [self.rounded(one) for one in (x, self.weight)]
        return F.linear(rounded[0], rounded[1], self.bias)

    @staticmethod
    def rounded(values: Tensor) -> Tensor:
        """By a scale read from the values."""
        scale = float(values.detach().abs().max()) / 127 + 1e-9
        return torch.fake_quantize_per_tensor_affine(values, scale, 0, -128, 127)


def quantised() -> nn.Module:
    return nn.Sequential(FakeQuantised(8, 16), nn.ReLU(), FakeQuantised(16, 2))


class Experts(nn.Module):
    """Every row goes to the expert its gate prefers; an expert without rows is not called."""

    def __init__(self, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(8, experts)
        self.experts = nn.ModuleList(Net(8) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(1).max(1)
        scores = x.new_zeros(len(x), 2)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                scores = scores.index_add(0, rows, weights[rows, None] * expert(x[rows]))
        return scores


class EarlyExit(nn.Module):
    """As many layers as it takes to be sure."""

    def __init__(self, sure: float = 0.9) -> None:
        super().__init__()
        self.sure = sure
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.exits = nn.ModuleList(nn.Linear(8, 2) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = x.new_zeros(len(x), 2)
        for layer, leave in zip(self.layers, self.exits, strict=True):
            x = layer(x).relu()
            scores = scores + leave(x)
            if float(scores.detach().softmax(1).amax(1).mean()) > self.sure:
                break
        return scores


def lazy() -> nn.Module:
    """Widths are known when the first batch comes."""
    return nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(2))


class Spectral(nn.Module):
    """Complex weights between a Fourier transform and its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.randn(4, 5, dtype=torch.cfloat) / 2)
        self.last = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x)[:, None] * self.filters
        return self.last(torch.fft.irfft(spectrum, n=8).flatten(1).relu())


class Tuned(nn.Module):
    """A backbone that stays as it is, and a head that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(8, 32).requires_grad_(False)
        self.neck, self.head = nn.Linear(32, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.neck(self.backbone(x).relu()).relu())


def groups_and_schedule(model: Any, settings: Any) -> Any:
    """The head learns ten times as fast as the neck; the rate falls with each update."""
    groups = [
        {"params": model.neck.parameters(), "lr": settings.start_lr / 10},
        {"params": model.head.parameters(), "lr": settings.start_lr},
    ]
    optimizer = torch.optim.AdamW(groups)
    return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99), "step"


def on_points(name: str, model: Any, *probes: str, **asked: Any) -> Specimen:
    """A classifier of points."""
    return kind(name, model, POINTS, *probes, loss=F.cross_entropy, **asked)


KINDS = (
    on_points("compiled-model", compiled, "*weight:grad:norm"),
    on_points("scripted-model", scripted, "*weight:grad:norm"),
    on_points("checkpointing", Checkpointed, "last:grad_output:norm"),
    on_points("own-autograd-function", Binary, "first:grad_output:norm"),
    on_points("quantisation-aware", quantised, "0:activation:std"),
    on_points(
        "mixture-of-experts",
        Experts,
        "gate:activation:std",
        vary={"experts": [2, 3]},
        settings={"lr": 0.02, "epochs": 2},
    ),
    on_points(
        "early-exit",
        EarlyExit,
        "layers.0:activation:std",
        vary={"sure": [0.6, 0.9]},
        settings={"lr": 0.01, "epochs": 2},
    ),
    on_points("lazy-modules", lazy, "0:activation:std", "2.weight:grad:norm"),
    on_points("complex-weights", Spectral, "last:activation:std"),
    on_points(
        "frozen-backbone",
        Tuned,
        "neck.weight:update:norm",
        optimizer=groups_and_schedule,
        vary={"lr": [0.05, 0.1]},
        settings={"epochs": 2},
    ),
    on_points(
        "average-accumulate-warmup",
        Net,
        "first.weight:grad:norm",
        vary={"ema": [0.5, 0.9]},
        settings={"accumulate": 2, "warmup_steps": 3, "lr": 0.05, "epochs": 3},
    ),
)
