"""What is recorded of a script as its settings: what was seen, and nothing that was not."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler, TensorDataset

from trainlab.watching.step_log import size_of
from trainlab.watching.timeline import EVALUATION, INFERENCE, OTHER
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


@contextmanager
def traced() -> Iterator[Tracer]:
    tracer = Tracer()
    try:
        yield tracer
    finally:
        tracer.close()


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 2), nn.Linear(2, 6)

    def encode(self, x: Tensor) -> Tensor:
        return self.encoder(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encode(x))


def test_each_parameter_counts_once_however_the_model_is_called() -> None:
    alone, free = Coder(), torch.ones(5, requires_grad=True)
    with traced() as tracer:
        model = Coder()
        model.decoder(torch.ones(1, 2))  # a part before the whole
        model(torch.ones(1, 6))
        model.encode(torch.ones(1, 6))
        alone.encode(torch.ones(1, 6))  # a method alone: of what it does not call nothing is known
        optimizer = torch.optim.SGD([*model.encoder.parameters(), free], lr=0.1)
        (model(torch.ones(1, 6)).sum() + free.sum()).backward()
        optimizer.step()
        copy.deepcopy(model)(torch.ones(1, 6))  # as the best one, loaded for a last test
    found = [(one.name, one.num_parameters) for one in tracer.log.models]
    assert found == [("Coder", 14 + 18), ("Linear", 14), ("Coder", 14 + 18)]
    assert facts_of(tracer)["parameters"] == 32 + 14 + 5


def test_a_batch_has_the_samples_that_its_sampler_draws_whatever_its_tensors_are() -> None:
    rows, weight = list(torch.ones(10, 3)), torch.ones(3, requires_grad=True)
    sampler = BatchSampler(range(10), 4, drop_last=False)
    given: list[tuple[dict[str, Any], int | None, int | None, list[int]]] = [
        # Time comes first: seven rows of any number of samples.
        (
            {"batch_size": 4, "collate_fn": lambda one: torch.ones(7, len(one), 3)},
            *(4, None, [4, 8, 10]),
        ),
        (
            {"batch_sampler": sampler, "collate_fn": lambda one: torch.ones(7, 3)},
            4,
            None,
            [4, 8, 10],
        ),
        ({"batch_size": 4, "drop_last": True}, 4, None, [4, 8]),
        ({"batch_size": None}, None, 3, [3 * n for n in range(1, 11)]),
    ]
    for options, size, dimension, samples in given:
        with traced() as tracer:
            optimizer = torch.optim.SGD([weight], lr=0.1)
            for batch in DataLoader(rows, **options):  # type: ignore[arg-type]
                (batch * weight).sum().backward()
                optimizer.step()
        assert (tracer.log.batch_size, tracer.log.first_dimension) == (size, dimension), options
        assert list(tracer.log.samples) == samples, options
        assert facts_of(tracer).get("batch_size") == size


def test_what_runs_in_a_closure_is_no_part_of_the_update() -> None:
    weight, told = torch.ones(1, requires_grad=True), list[int]()
    with traced() as tracer:
        optimizer, timeline = torch.optim.SGD([weight], lr=0.1), tracer.timeline

        def closure() -> Tensor:
            told.append(timeline.part)
            weight.grad = None
            loss = (weight * 3).sum()
            loss.backward()
            told.append(timeline.part)
            return loss

        assert optimizer.step(closure).item() == 3.0
        assert optimizer.step(closure=closure).item() == pytest.approx(2.1)
    assert told == [OTHER] * 4
    assert tracer.num_steps == 2


def test_accumulated_batches_that_are_read_several_at_a_time_are_all_counted() -> None:
    """As Hugging Face does; its libraries read one more ahead."""
    weight = torch.ones(1, requires_grad=True)
    with traced() as tracer:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        ahead = iter(DataLoader(list(torch.ones(60, 1)), batch_size=4))
        while batches := list(islice(ahead, 4)):
            for batch in batches:
                (batch * weight).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert list(tracer.log.samples) == [16, 32, 48, 60]
    facts = facts_of(tracer)
    assert (facts["batch_size"], facts["accumulate"]) == (4, 4)
    assert run_facts(tracer)["passes"] == 1


def test_a_learning_rate_is_the_highest_of_a_schedule_and_a_part_of_a_pass_is_a_part() -> None:
    weight = torch.ones(1, requires_grad=True)
    with traced() as tracer:
        optimizer = torch.optim.SGD([weight], lr=0.5)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [0.0, 0.5, 1.0, 0.2].__getitem__)
        for batch in islice(DataLoader(list(torch.ones(10, 1)), batch_size=2), 2):
            (batch * weight).sum().backward()
            optimizer.step()
            schedule.step()
    (seen,) = tracer.log.optimizers
    assert (seen.lowest_lr, seen.highest_lr) == (0.0, 0.25)
    facts = facts_of(tracer)
    assert (facts["lr"], facts["lr_varies"]) == (0.25, True)
    assert run_facts(tracer) == {"updates": 2, "passes": 0.4}
    assert tracer.log.loader is not None
    assert tracer.log.loader.has_ended_pass is False


def test_an_agent_that_collects_its_data_is_not_tested() -> None:
    model = nn.Linear(3, 1)
    with traced() as tracer:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                states = [model(torch.ones(1, 3)) for _ in range(4)]
            assert not tracer.is_testing
            model(torch.ones(len(states), 3)).sum().backward()
            optimizer.step()
    timeline = tracer.timeline
    assert (timeline.num_evaluation_passes, timeline.num_inference_passes) == (0, 12)
    assert timeline.total_ns[EVALUATION] == 0 < timeline.total_ns[INFERENCE]
    assert set(tracer.log.epochs) == {1}


def test_a_teacher_that_runs_twice_on_a_batch_is_no_test() -> None:
    student, teacher = nn.Linear(3, 1), nn.Linear(3, 1)
    with traced() as tracer:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for batch in DataLoader(list(torch.ones(6, 3)), batch_size=2):
            with torch.no_grad():
                target = teacher(batch) + teacher(-batch)
            (student(batch) - target).square().sum().backward()
            optimizer.step()
    assert tracer.timeline.num_evaluation_passes == 0
    assert tracer.timeline.total_ns[EVALUATION] == 0


def test_a_target_network_is_no_test_of_the_model_that_trains() -> None:
    """Whichever of the two runs first; one of the model itself is, and one of several passes of a copy."""
    model, target = nn.Linear(3, 1), nn.Linear(3, 1)
    with traced() as tracer:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def run(module: nn.Module) -> torch.Tensor:
            with torch.set_grad_enabled(module is model):
                return module(torch.ones(2, 3))

        for first, second in ((target, model), (model, target)):
            sum_of = run(first) + run(second)
            assert not tracer.is_testing
            sum_of.sum().backward()
            optimizer.step()
        for tested, passes in ((model, 1), (target, 2)):
            run(model)  # as an agent acts, between two updates
            for _ in range(passes):
                with torch.no_grad():
                    tested(torch.ones(2, 3))
            assert tracer.is_testing


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


def test_models_trained_one_after_the_other_are_several_trainings() -> None:
    """Each of a fold of its own: their parameters make no sum, and a loader has what its sampler draws."""
    data = TensorDataset(torch.rand(12, 3), torch.rand(12, 1))
    with traced() as tracer:
        for fold in range(3):
            model = nn.Linear(3, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
            sampler = SubsetRandomSampler(range(fold, fold + 8))
            loader = DataLoader(data, batch_size=4, sampler=sampler)
            for inputs, targets in chain(loader, loader):
                nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
        restarts, facts = tracer.log.restarts, facts_of(tracer)
        # One that goes on with the same model is no other training.
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
    assert restarts == tracer.log.restarts == [4, 8]
    assert list(tracer.log.epochs[:12]) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert "parameters" not in facts
    assert facts["train_samples"] == 8
