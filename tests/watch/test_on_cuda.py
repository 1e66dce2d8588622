"""Watched loops on a GPU: losses are those of the script, also where it captures its steps."""

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


def test_losses_are_those_of_the_script() -> None:
    tracer = Tracer()
    tracer.is_sampled = True
    printed = plain()
    assert list(tracer.log.losses.values()) == printed
    tracer.close()


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
    assert values[3] != values[3]  # captured, not computed
