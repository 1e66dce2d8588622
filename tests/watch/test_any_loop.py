"""Whatever a loop does, and in whatever order: what is told of steps passed by is what was."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.watching.seeing import looks
from trainlab.watching.seeing.looks import Looks
from trainlab.watching.seeing.watcher import Watcher

DO = (
    *("batch", "other batch", "backward", "backward of two", "gradient"),
    *("update", "other update", "zero"),
)
RARELY = ("test", "new optimizer", "leave the pass", "gradient")

steps = st.lists(st.sampled_from(DO), min_size=1, max_size=6)
"""What a step of a loop is made of, done again and again."""
between = st.dictionaries(st.integers(0, 60), st.sampled_from(RARELY), max_size=4)
"""What happens before some of its rounds."""


class Loop:
    """Does what it is told to, with two loaders and two optimizers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.loaders = [
            DataLoader(TensorDataset(torch.randn(23, 3)), batch_size=4),
            DataLoader(TensorDataset(torch.randn(9, 3)), batch_size=2),
        ]
        self.passes: list[Iterator[Any] | None] = [None, None]
        self.inputs = torch.ones(2, 3)
        self.make()

    def make(self) -> None:
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.01) for _ in range(2)]

    def fetch(self, place: int) -> None:
        under_way = self.passes[place]
        if under_way is None:
            under_way = self.passes[place] = iter(self.loaders[place])
        batch = next(under_way, None)
        if batch is None:
            self.passes[place] = None
        else:
            self.inputs = batch[0]

    def do(self, what: str) -> None:
        if what in {"batch", "other batch"}:
            self.fetch(int(what == "other batch"))
        elif what == "backward":
            self.model(self.inputs).square().mean().backward()
        elif what == "backward of two":
            loss = self.model(self.inputs).square()
            torch.autograd.backward([loss.mean(), loss.sum()])
        elif what in {"update", "other update"}:
            self.optimizers[what == "other update"].step()
        elif what == "zero":
            self.model.zero_grad()
        elif what == "test":
            self.model.eval()
            with torch.no_grad():
                self.model(self.inputs)
            self.model.train()
        elif what == "new optimizer":
            self.make()
        elif what == "leave the pass":
            self.passes[0] = None
        elif what == "gradient":
            torch.autograd.grad(self.model(self.inputs).sum(), list(self.model.parameters()))


def watched(step: list[str], rarely: dict[int, str], *, passes: bool) -> Watcher:
    watcher = Watcher()
    watcher.looks = Looks() if passes else None
    try:
        loop = Loop()
        for number in range(60):
            if number in rarely:
                loop.do(rarely[number])
            for what in step:
                loop.do(what)
    finally:
        watcher.close()
    return watcher


def told(watcher: Watcher) -> dict[str, Any]:
    course = watcher.course
    return {
        "losses": [repr(value) for value in course.losses.values()],
        "followed": course.followed,
        "samples": course.samples,
        "epochs": course.epochs,
        "backward": course.num_backward,
        "steps": watcher.num_steps,
        "times": len(watcher.steps_ns),
        "fetched": watcher.num_fetched,
        "batch": watcher.seen.batch_size,
        "loaders": [vars(one) for one in watcher.seen.loaders],
        "optimizers": [vars(one) for one in watcher.seen.optimizers],
    }


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))
@example(step=["batch", "update", "backward", "other batch", "backward"], rarely={})
@example(step=["batch", "gradient", "update"], rarely={})
@given(steps, between)
def test_any_loop_is_told_alike(step: list[str], rarely: dict[int, str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(looks, "FIRST", 5)
        patched.setattr(looks, "AFTER", 2)
        patched.setattr(looks, "EVERY", 8)
        whole = told(watched(step, rarely, passes=False))
        assert told(watched(step, rarely, passes=True)) == whole
