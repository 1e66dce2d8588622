"""Torch's calls are seen while a watcher is there; afterwards, and for all others, torch is as before."""

import copy
import io
import pickle
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainlab.watching.seeing.calls.hooks import ALL, MARKS, STEPS
from trainlab.watching.seeing.watcher import Watcher


def state_of_torch() -> list[Any]:
    """All that hooks could change."""
    return [
        dict(modules._global_forward_pre_hooks),
        dict(modules._global_forward_hooks),
        [one for one in warnings.filters if "global hooks" in str(one[1])],
        dict(optimizers._global_optimizer_pre_hooks),
        dict(optimizers._global_optimizer_post_hooks),
        *(torch.autograd.backward, torch.autograd.grad, torch.amp.GradScaler.scale),
        *(Optimizer.zero_grad, Optimizer.__init__, nn.Module.zero_grad, nn.Module.eval),
        *(DataLoader.__iter__, _BaseDataLoaderIter.__next__, Tensor.__dict__.get("to")),
    ]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def train(model: nn.Module, optimizer: Optimizer, num_samples: int = 24) -> list[float]:
    inputs, targets = torch.randn(num_samples, 4), torch.randint(0, 2, (num_samples,))
    losses = []
    for one, target in DataLoader(TensorDataset(inputs, targets), batch_size=8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(one), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_torch_is_as_before_once_the_watcher_is_closed() -> None:
    before = state_of_torch()
    watcher = Watcher()
    assert state_of_torch() != before
    train(model := net(), torch.optim.SGD(model.parameters(), lr=0.1))
    watcher.close()
    assert state_of_torch() == before
    assert watcher.num_steps == 3


def test_an_optimizer_made_before_the_watcher_is_seen() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher = Watcher()
    losses = train(model, optimizer)
    watcher.close()
    assert watcher.num_steps == 3
    assert [watcher.course.losses_of(step)["train/loss"] for step in range(3)] == losses
    assert watcher.course.samples == [8, 16, 24]


def test_copies_and_files_of_a_model_hold_nothing_of_ours() -> None:
    model = net()
    watcher = Watcher()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert all(not one._forward_hooks for one in model.modules())
    copied = copy.deepcopy(model)
    stream = io.BytesIO()
    torch.save(model, stream)
    watcher.close()
    assert b"trainlab" not in stream.getvalue()
    assert b"trainlab" not in pickle.dumps(copied)


class Raising(nn.Module):
    """Raises when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 2)
        self.raises = False

    def forward(self, inputs: Tensor) -> Tensor:
        if self.raises:
            raise ValueError("told to")
        out: Tensor = self.inner(inputs)
        return out


def test_a_script_that_goes_on_after_its_model_raised_is_seen_on() -> None:
    model = Raising()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher = Watcher()
    train(model, optimizer)
    model.raises = True
    with pytest.raises(ValueError, match="told to"):
        model(torch.zeros(1, 4))
    model.raises = False
    train(model, optimizer)
    watcher.close()
    assert watcher.num_steps == 6
    assert not model._forward_hooks
    forward = [step[5] for step in watcher.steps_ns]
    assert all(forward)


def test_inner_modules_have_no_hooks_while_the_model_runs() -> None:
    seen = []

    class Looking(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(len(modules._global_forward_pre_hooks))
            return inputs

    model = nn.Sequential(nn.Linear(4, 2), Looking())
    watcher = Watcher()
    model(torch.zeros(1, 4))
    assert len(modules._global_forward_pre_hooks) == 1
    watcher.close()
    assert seen == [0]


def test_what_other_threads_do_is_not_counted() -> None:
    model = net()
    watcher = Watcher()
    worker = threading.Thread(target=lambda: model(torch.zeros(1, 4)).sum().backward())
    worker.start()
    worker.join()
    watcher.close()
    assert watcher.course.num_backward == 0
    assert not watcher.seen.models


def test_the_loss_of_a_scaled_backward_pass_is_the_unscaled_one() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    watcher = Watcher()
    loss = model(torch.ones(2, 4)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    watcher.close()
    assert watcher.course.losses_of(0) == {"train/loss": loss.item()}


def test_the_losses_of_several_batches_that_make_one_update_add_up() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher = Watcher()
    parts = []
    for _ in range(3):
        loss = model(torch.randn(2, 4)).square().mean() / 3
        loss.backward()
        parts.append(loss.item())
    optimizer.step()
    watcher.close()
    assert watcher.num_steps == 1
    assert watcher.course.losses_of(0) == {"train/loss": sum(parts)}


def test_two_optimizers_have_a_loss_each_and_the_first_ends_the_step() -> None:
    first, second = net(), net()
    adam, sgd = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second))
    watcher = Watcher()
    losses = []
    for _ in range(3):
        for model, optimizer in ((first, adam), (second, sgd)):
            loss = model(torch.randn(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    watcher.close()
    assert watcher.num_steps == 3
    assert watcher.course.losses_of(1) == {"train/loss_2": losses[1], "train/loss": losses[2]}


def test_a_compiled_model_makes_torch_warn_of_nothing_of_ours() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        watcher = Watcher()
        torch.compile(net(), backend="eager")
        watcher.close()
    assert [str(one.message) for one in told if "global hooks" in str(one.message)] == []


def compiled_frames(*, with_backward: bool) -> list[int]:
    """How many torch has compiled after a while at each level."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = CompileCounter()

    def go_back() -> None:
        model(torch.ones(2, 4)).mean().backward()

    def update() -> None:
        if with_backward:
            go_back()
        optimizer.step()
        optimizer.zero_grad()

    compiled_update = torch.compile(update, backend=compiled)
    watcher = Watcher()
    nums: list[int] = []
    for level in (ALL, MARKS, ALL, STEPS, MARKS, ALL):
        watcher.hooks.see(level)
        for _ in range(2):
            if not with_backward:
                go_back()
            compiled_update()
        nums.append(compiled.frame_count)
    watcher.hooks.passed.clear()
    watcher.close()
    assert nums[0] > 0
    return nums


def test_what_torch_compiles_depends_on_nothing_of_ours() -> None:
    """Else it would compile anew each time that more or less is seen."""
    nums = compiled_frames(with_backward=False)
    assert nums == [nums[0]] * 6


def test_a_step_that_is_compiled_with_its_backward_pass_is_compiled_once() -> None:
    """But for a function of ours that torch meets on its way, when steps are first passed by."""
    nums = compiled_frames(with_backward=True)
    assert nums[1] <= nums[0] + 1
    assert nums[1:] == [nums[1]] * 5
