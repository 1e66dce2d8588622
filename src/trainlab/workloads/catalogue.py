"""The built-in workloads, described without importing torch: for help texts, tables and plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trainlab.spec.facts import WorkloadFacts


@dataclass(frozen=True)
class Entry:
    """A built-in workload: where its code is and what it starts from."""

    name: str
    summary: str
    module: str
    images: str
    """The data set it learns from."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    model_defaults: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of its model, and what they are where they are not set."""
    model_least: Mapping[str, int] = field(default_factory=dict)
    """The least that parameters which are whole numbers may be."""
    loss_parameters: tuple[str, ...] = ()
    """What can be set of its loss."""

    @property
    def facts(self) -> WorkloadFacts:
        """What a study needs to know of it."""
        return WorkloadFacts(
            name=self.name,
            defaults=self.defaults,
            parameters=tuple(self.model_defaults),
            metrics=("accuracy",),
            model_defaults=self.model_defaults,
            model_least=self.model_least,
            loss_parameters=self.loss_parameters,
            num_train=NUM_TRAIN,
        )


NUM_TRAIN = MappingProxyType({"full": 60_000, "bundled": 6_000})
"""Training samples of both data sets, by what `data` chooses."""

_ENTRIES = (
    Entry(
        name="mnist-cnn",
        summary="two convolutions and two linear layers on MNIST (the PyTorch example)",
        module="trainlab.workloads.mnist_cnn",
        images="mnist",
        defaults={
            "epochs": 1,
            "batch_size": 64,
            "optimizer": "adadelta",
            "lr": 1.0,
            "schedule": "step",
            "lr_gamma": 0.7,
        },
        loss_parameters=("ignore_index", "reduction"),
    ),
    Entry(
        name="fashion-mlp",
        summary="one hidden layer of 128 on Fashion-MNIST",
        module="trainlab.workloads.fashion_mlp",
        images="fashion-mnist",
        defaults={"epochs": 5, "batch_size": 32, "optimizer": "adam", "lr": 0.001},
        model_defaults={"hidden": 128},
        model_least={"hidden": 1},
        loss_parameters=("ignore_index", "reduction", "label_smoothing"),
    ),
)

BUILTIN: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
