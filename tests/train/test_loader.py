"""Data is loaded once, and a part of it is the same for every trial."""

import dataclasses
from pathlib import Path

import pytest
import torch

from trainlab.data.dataset import Dataset, Split
from trainlab.errors import DataError
from trainlab.spec import TrainSpec
from trainlab.train.loader import Loader
from trainlab.workloads.workload import Workload


def sorted_data(choice: str) -> Dataset:
    rows = torch.arange(100)
    return Dataset("sorted", Split(rows, rows // 10), Split(rows, rows // 10))


def loader_of(tiny: Workload) -> Loader:
    return Loader({"sorted": dataclasses.replace(tiny, name="sorted", data=sorted_data)})


def test_fewer_samples_are_drawn_whole_and_nested(tiny: Workload) -> None:
    load = loader_of(tiny)
    twenty, fifty = (load.data("sorted", TrainSpec(train_samples=number)) for number in (20, 50))
    assert twenty is load.data("sorted", TrainSpec(train_samples=20))
    assert (len(twenty.train), len(fifty.train)) == (20, 50)
    assert torch.equal(twenty.train.inputs, fifty.train.inputs[:20])
    assert torch.equal(twenty.train.targets, twenty.train.inputs // 10)
    assert len(twenty.train.inputs.unique()) == 20
    # Sorted data has only two classes in its first twenty.
    assert len(twenty.train.targets.unique()) > 5
    assert twenty.is_subset
    assert twenty.test is load.data("sorted", TrainSpec()).test
    assert load.data("sorted", TrainSpec(train_samples=100)) is load.data("sorted", TrainSpec())


def test_inputs_and_targets_must_pair_up() -> None:
    with pytest.raises(DataError, match="3 inputs and 2 targets"):
        Split(torch.zeros(3, 2), torch.zeros(2))


def test_a_held_out_share_is_for_validation_and_not_trained_on(tiny: Workload) -> None:
    load = loader_of(tiny)
    whole, split = (load.data("sorted", TrainSpec(val_fraction=share)) for share in (0.0, 0.25))
    assert split is load.data("sorted", TrainSpec(val_fraction=0.25))
    assert (len(split.train), len(split.val)) == (75, 25)
    both = torch.cat([split.train.inputs, split.val.inputs])
    assert sorted(both.flatten().tolist()) == sorted(whole.train.inputs.flatten().tolist())
    assert split.test is whole.test
    assert len(split.val.targets.unique()) > 5


def test_what_a_file_draws_as_it_is_imported_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "drawing.py").write_text(
        "import random, numpy, torch\n"
        "from trainlab import Dataset, Split, Workload\n"
        "x = torch.randn(4, 1) + random.random() + numpy.random.rand()\n"
        "own = Workload(name='own', model=lambda: torch.nn.Linear(1, 1), loss=torch.nn.MSELoss(),\n"
        "               metrics={}, data=Dataset('d', Split(x, x), Split(x, x)))\n"
    )
    drawn = [Loader().workload(f"{tmp_path}/drawing.py:own").dataset("auto") for _ in range(2)]
    assert torch.equal(drawn[0].train.inputs, drawn[1].train.inputs)
