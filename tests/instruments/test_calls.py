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
    """Every call that was begun, but for some that it does not want."""

    def __init__(self, *unwanted: str) -> None:
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


def test_calls_come_in_order_with_numbers_and_roles_though_one_raised_before() -> None:
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
        watch.stop_watching()
        model(x)  # not watched
    finally:
        watch.uninstall()
    assert is_unwatched()
    assert [(call.name, call.number, call.role) for call in listener.begun] == [
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
    model, x = Net(), torch.randn(2, 4)
    for listener, sees_functions, names in (
        (Heard("block", "relu", "Square"), True, "Net first first block.0 block.1 add"),
        (Heard(), False, "Net first first block block.0 block.1"),
    ):
        watch = CallWatch(model, listener, sees_functions=sees_functions)
        watch.install()
        watch.start_watching()
        model(x)
        watch.uninstall()
        assert " ".join(call.name for call in listener.begun) == names
