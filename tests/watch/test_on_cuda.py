"""Watched loops on a GPU: losses are those of the script, also where it captures its steps."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from trainlab.watching.tracer import FIRST, Tracer

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
UPDATES = 4 * FIRST


def parts() -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, torch.randn(UPDATES, 4, 8).cuda(), torch.randn(UPDATES, 4, 1).cuda()


def plain() -> list[float]:
    """Returns what its losses were, read by a copy of each before it writes to them in their own place."""
    model, optimizer, inputs, targets = parts()
    losses = []
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        losses.append(loss.detach().clone())
        loss.data *= 100
        optimizer.step()
    return torch.stack(losses).tolist()


def graphed_loss() -> list[float]:
    """Model and loss are one graph, whose output is always in the same place."""
    model, optimizer, inputs, targets = parts()

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return nn.functional.mse_loss(self.model(x), y)

    graphed = torch.cuda.make_graphed_callables(WithLoss(), (inputs[0], targets[0]))
    losses = []
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        loss = graphed(x, y)
        loss.backward()
        losses.append(loss.detach().clone())
        optimizer.step()
    return torch.stack(losses).tolist()


def watched(loop: Callable[[], list[float]]) -> tuple[list[float], list[float]]:
    tracer = Tracer()
    tracer.is_sampled = True
    printed = loop()
    seen = list(tracer.log.losses.values())
    tracer.close()
    return printed, seen


def test_losses_are_those_of_the_script() -> None:
    for loop in (plain, graphed_loss):
        printed, seen = watched(loop)
        # Those before are of the backward passes that warm a graph up and that it is captured from.
        assert seen[-len(printed) :] == printed, loop


def test_a_script_that_captures_its_whole_step_runs_as_ever() -> None:
    tracer = Tracer()
    tracer.is_sampled = True
    read: list[int] = []

    def on_step(number: int) -> None:
        read.append(len(tracer.log.losses.values()))

    tracer.on_step = on_step  # as the curve does now and then
    model, _, inputs, targets = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = inputs[0].clone(), targets[0].clone()

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for one, target in zip(inputs[:20], targets[:20], strict=True):
        x.copy_(one)
        y.copy_(target)
        graph.replay()
    assert loss.item() > 0
    values = list(tracer.log.losses.values())
    tracer.close()
    assert read == [1, 2, 3, 4]
    assert values[:3] == values[:3]
    assert values[3] != values[3]  # captured, not computed
