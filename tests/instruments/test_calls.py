"""The calls of a step as a listener hears of them: names, numbers, roles, and torch left as it was."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import Square, is_unwatched
from trainlab.data.nesting import tensors_in
from trainlab.instruments.calls import CallWatch, EndListener, WatchedCall


class Heard:
    """Every call that made a tensor, in the order in which they began."""

    def __init__(self, unwanted: tuple[str, ...] = ()) -> None:
        self.begun: list[WatchedCall] = []
        self.ended: list[WatchedCall] = []
        self._unwanted = unwanted

    def __call__(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        if call.name in self._unwanted:
            return None
        self.begun.append(call)

        def ends(returned: Any) -> bool:
            self.ended.append(call)
            return any(True for _ in tensors_in(returned))

        return ends

    def told(self) -> list[tuple[str, int, str]]:
        return [(call.name, call.number, call.role) for call in self.begun]


class Net(nn.Module):
    """A container, a shared layer, functions, a custom function, a torch.nn module that calls others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.relu(self.first(x))
        return self.block(Square.apply(x)) + x.shape[0]


def heard(
    model: nn.Module,
    listener: Heard,
    shape: tuple[int, ...] = (2, 4),
    *,
    sees_functions: bool = True,
) -> Heard:
    x = torch.randn(shape)
    watch = CallWatch(model, listener, sees_functions=sees_functions)
    watch.install()
    try:
        watch.start_watching()
        model(x)
        watch.stop_watching()
        model(x)  # not watched
    finally:
        watch.uninstall()
    assert is_unwatched()
    return listener


def test_calls_come_in_order_with_numbers_and_roles() -> None:
    listener = heard(Net(), Heard())
    assert listener.told() == [
        ("Net", 1, "container"),
        ("first", 1, "call"),
        ("relu", 1, "call"),
        ("first", 2, "call"),
        ("relu", 2, "call"),
        ("Square", 1, "call"),
        ("block", 1, "container"),
        ("block.0", 1, "call"),
        ("block.1", 1, "call"),
        ("add", 1, "call"),
    ]
    assert set(listener.ended) == set(listener.begun)
    inner = next(call for call in listener.begun if call.name == "block.0")
    assert (inner.kind, inner.types) == ("module", ("Linear",))


def test_calls_that_nobody_wants_hide_nothing_else() -> None:
    listener = heard(Net(), Heard(unwanted=("block", "relu", "Square")))
    names = [name for name, _, _ in listener.told()]
    assert names == ["Net", "first", "first", "block.0", "block.1", "add"]
    modules = heard(Net(), Heard(), sees_functions=False)
    names = ["Net", "first", "first", "block", "block.0", "block.1"]
    assert [(name, role) for name, _, role in modules.told()] == [(n, "container") for n in names]


def test_a_call_that_raises_has_no_end_and_the_next_step_is_seen_whole() -> None:
    model, listener, narrow, x = Net(), Heard(), torch.randn(2, 3), torch.randn(2, 4)
    watch = CallWatch(model, listener)
    watch.install()
    try:
        watch.start_watching()
        with pytest.raises(RuntimeError):
            model(narrow)
        watch.stop_watching()
        assert [call.name for call in listener.begun] == ["Net", "first"]
        assert listener.ended == []
        listener.begun.clear()
        watch.start_watching()
        model(x)
    finally:
        watch.uninstall()
    assert listener.told()[1] == ("first", 1, "call")
    assert len(listener.begun) == len(listener.ended) == 10


def test_a_torch_module_that_calls_others_becomes_a_container() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).train()
    listener = heard(layer, Heard(), (2, 3, 4))
    roles = {call.name: call.role for call in listener.begun}
    assert roles["TransformerEncoderLayer"] == "container"
    assert roles["linear1"] == "call"
    assert roles["self_attn"] == "call"
