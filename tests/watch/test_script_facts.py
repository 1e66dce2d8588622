"""What is recorded of a script as its settings: what was seen, and nothing that was not."""

from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.watching.step_log import digest_of, size_of
from trainlab.watching.tracer import Tracer
from trainlab.watching.watched_run import facts_of, run_facts


def train() -> None:
    data = TensorDataset(torch.rand(12, 3), torch.rand(12, 1))
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for inputs, targets in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def test_facts_are_what_was_seen_and_a_script_that_ran_again_has_its_model_once() -> None:
    tracer = Tracer()
    try:
        train()
        tracer.begin_again()
        train()
    finally:
        tracer.close()
    machine = {"device": "cpu", "threads": torch.get_num_threads(), "workers": 0, "pinned": False}
    data = {"batch_size": 4, "order": "shuffled", "drop_last": False, "train_samples": 12}
    model = {"model": "Linear", "parameters": 4, "dtype": "float32"}
    assert facts_of(tracer) == machine | data | model | {"optimizer": "SGD", "lr": 0.25}
    assert run_facts(tracer) == {"updates": 6, "passes": 1}


def test_what_was_not_seen_is_left_out() -> None:
    tracer = Tracer()
    tracer.close()
    assert facts_of(tracer) == {"device": "cpu", "threads": torch.get_num_threads()}
    assert run_facts(tracer) == {"updates": 0}


class Kind(Enum):
    IMAGE = 1


def test_the_first_tensor_of_a_batch_is_its_size_whatever_the_batch_holds() -> None:
    batches: list[tuple[Any, int | None]] = [
        ([Kind.IMAGE, torch.zeros(3, 2)], 3),
        (SimpleNamespace(name="a", late={"x": torch.zeros(5, 2)}), 5),
        (["a", 1, None, int], None),
        ({"y": ("b", [torch.zeros(4)]), "x": torch.zeros(9)}, 4),
        (SimpleNamespace(x=torch.zeros(())), None),
    ]
    for batch, size in batches:
        assert size_of(batch) == size
        assert bool(digest_of(batch)) == (size is not None or isinstance(batch, SimpleNamespace))
