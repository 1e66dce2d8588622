"""Data is loaded once, and a part of it is the same for every trial."""

import dataclasses

import torch

from trainlab.data.dataset import Dataset, Split
from trainlab.spec import TrainSpec
from trainlab.train.loader import Loader
from trainlab.workloads.workload import Workload


def sorted_data(choice: str) -> Dataset:
    rows = torch.arange(100)
    return Dataset("sorted", Split(rows, rows // 10), Split(rows, rows // 10))


def loader_of(tiny: Workload) -> Loader:
    return Loader({"sorted": dataclasses.replace(tiny, name="sorted", data=sorted_data)})


def fewer(number: int) -> TrainSpec:
    return TrainSpec(train_samples=number)


def test_fewer_samples_are_drawn_whole_and_nested(tiny: Workload) -> None:
    load = loader_of(tiny)
    twenty, fifty = (load.data("sorted", fewer(number)) for number in (20, 50))
    assert twenty is load.data("sorted", fewer(20))
    assert (len(twenty.train), len(fifty.train)) == (20, 50)
    assert torch.equal(twenty.train.inputs, fifty.train.inputs[:20])
    assert torch.equal(twenty.train.targets, twenty.train.inputs // 10)
    assert len(twenty.train.inputs.unique()) == 20
    # Sorted data has only two classes in its first twenty.
    assert len(twenty.train.targets.unique()) > 5
    assert twenty.is_subset
    assert twenty.test is load.data("sorted", TrainSpec()).test


def test_all_samples_are_the_set_itself(tiny: Workload) -> None:
    load = loader_of(tiny)
    assert load.data("sorted", fewer(100)) is load.data("sorted", TrainSpec())


def test_a_held_out_share_is_for_validation_and_not_trained_on(tiny: Workload) -> None:
    load = loader_of(tiny)
    whole, split = (load.data("sorted", TrainSpec(val_fraction=share)) for share in (0.0, 0.25))
    assert split is load.data("sorted", TrainSpec(val_fraction=0.25))
    assert (len(split.train), len(split.val)) == (75, 25)
    both = torch.cat([split.train.inputs, split.val.inputs])
    assert sorted(both.flatten().tolist()) == sorted(whole.train.inputs.flatten().tolist())
    assert split.test is whole.test
    assert len(split.val.targets.unique()) > 5
