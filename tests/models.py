"""Small models, each with something that makes layers hard to tell apart. All take 8 numbers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules import module as modules
from torch.nn.utils.parametrizations import weight_norm
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

CALL = nn.Module.__call__


def is_unwatched() -> bool:
    """Whether torch is as it was before anybody watched."""
    return (
        _get_current_function_mode() is None
        and _get_current_dispatch_mode() is None
        and not modules._global_forward_hooks
        and not modules._global_forward_pre_hooks
        and "apply" not in vars(_SingleLevelFunction)
        and nn.Module.__call__ is CALL
    )


def mean_of_logits(outputs: dict[str, tuple[Tensor, Tensor]], targets: Tensor) -> Tensor:
    """The loss of `Structured`."""
    first, second = outputs["logits"]
    return F.cross_entropy(first + second, targets)


class Branching(nn.Module):
    """Every other step takes another way; an in-place ReLU; a module used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = nn.Linear(8, 8), nn.Linear(8, 8)
        self.relu, self.last = nn.ReLU(inplace=True), nn.Linear(8, 3)
        self.turn = 0

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.shared(self.shared(self.relu(self.first(inputs))))
        self.turn += 1
        if float(hidden.detach().square().sum()) >= 0 and self.turn % 2:
            hidden = torch.tanh(hidden)
        return self.last(hidden)


class Shared(nn.Module):
    """One module, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.shared(self.shared(inputs)))


class InPlace(nn.Module):
    """Memory is changed through the tensor and through a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu, self.last = nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        view = hidden.view(-1, 2, 4)
        self.relu(hidden)
        scaled = view * 2
        scaled[:, 0] = 1.0
        return self.last(scaled.flatten(1))


class Residual(nn.Module):
    """A branch that is added to what it started from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        return self.last(hidden + self.branch(hidden))


class Recurrent(nn.Module):
    """An LSTM of two layers over 4 tokens of 2 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(2, 8, num_layers=2, batch_first=True), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.lstm(inputs.view(-1, 4, 2))[0][:, -1])


class Attending(nn.Module):
    """nn.MultiheadAttention over 2 tokens of 4 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.view(-1, 2, 4)
        mixed = self.attention(query=tokens, key=tokens, value=tokens)[0]
        return self.last(mixed.flatten(1))


class Encoding(nn.Module):
    """nn.TransformerEncoderLayer, which is one fused operator at inference."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 16, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.encoder(inputs.view(-1, 2, 4)).flatten(1))


class ScaledDotProduct(nn.Module):
    """F.scaled_dot_product_attention over 2 tokens of 4 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.last = nn.Linear(4, 12), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = self.into(inputs.view(-1, 1, 2, 4)).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.last(mixed.flatten(1))


class Scale(nn.Module):
    """A parameter of its own, used by functions twice."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.unused = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(5))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale + self.scale


class OwnParameter(nn.Module):
    """A user's own module with a parameter, and a weight used transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.weight = Scale(), nn.Parameter(torch.randn(3, 8) / 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.own(inputs) @ self.weight.T


class Structured(nn.Module):
    """Gives a dict with a tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        return {"logits": (self.first(inputs), self.second(inputs))}


class Frozen(nn.Module):
    """The first layer is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(inputs).relu())


class Convolving(nn.Module):
    """Convolutions: plain, in groups, transposed, normalised, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.grouped = nn.Conv1d(1, 4, 3, padding=1), nn.Conv1d(4, 8, 3, groups=4)
        self.back, self.norm = nn.ConvTranspose1d(8, 4, 3), nn.BatchNorm1d(4)
        self.last = nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.back(self.grouped(self.into(inputs[:, None]))))
        return self.last(F.max_pool1d(hidden, 2).flatten(1))


class Parametrized(nn.Module):
    """A weight that is computed from two others at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.last = weight_norm(nn.Linear(8, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(inputs)


class Checkpointed(nn.Module):
    """A block whose forward pass runs again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Any = checkpoint(self.block, self.first(inputs), use_reentrant=True)
        return self.last(hidden)


class Careless(nn.Module):
    """Catches a module's failure, uses a mode of its own and a module nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong, self.last = nn.Linear(5, 3), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        try:
            return self.wrong(inputs)  # type: ignore[no-any-return]
        except RuntimeError:
            with torch.device("cpu"):
                hidden = self.last(nn.Tanh()(inputs))
            return hidden + torch.zeros(3, device=inputs.device)


class Square(torch.autograd.Function):
    """x times x."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        ctx.save_for_backward(inputs)
        return inputs * inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (inputs,) = ctx.saved_tensors
        return 2 * inputs * gradient


class Raising(nn.Module):
    """Fails in the middle of a layer, at the given call."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.layers, self.calls_left = nn.Sequential(nn.Linear(8, 3), Failing()), at

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls_left -= 1
        self.layers[1].fails = self.calls_left == 0
        return self.layers(inputs)


class Failing(nn.LogSoftmax):
    """Fails when told to."""

    fails = False

    def forward(self, inputs: Tensor) -> Tensor:
        if self.fails:
            raise ArithmeticError("planted")
        return inputs.log_softmax(1)


def nested() -> nn.Module:
    """Sequential in Sequential."""
    inner = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Dropout(0.2)))
    return nn.Sequential(inner, nn.Linear(8, 3))


ZOO = {
    model.__name__: model
    for model in [
        *(Branching, Shared, InPlace, Residual, Recurrent, Attending, Encoding, ScaledDotProduct),
        *(OwnParameter, Structured, Frozen, Convolving, Parametrized, Checkpointed),
        *(Careless, nested),
    ]
}
