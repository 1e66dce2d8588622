"""The built-in workloads, described without importing torch: for help texts, tables and plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trainlab.spec.workload import WorkloadFacts


@dataclass(frozen=True)
class Entry:
    """A built-in workload: where its code is and what it starts from."""

    name: str
    summary: str
    module: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    model_defaults: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of its model, and what they are where they are not set."""

    @property
    def facts(self) -> WorkloadFacts:
        """What a study needs to know of it."""
        parameters = tuple(self.model_defaults)
        return WorkloadFacts(
            self.name, self.defaults, parameters, ("accuracy",), self.model_defaults
        )


_ENTRIES = (
    Entry(
        name="mnist-cnn",
        summary="two convolutions and two linear layers on MNIST (the PyTorch example)",
        module="trainlab.workloads.mnist_cnn",
        defaults={
            "epochs": 1,
            "batch_size": 64,
            "optimizer": "adadelta",
            "lr": 1.0,
            "schedule": "step",
            "lr_gamma": 0.7,
        },
    ),
    Entry(
        name="fashion-mlp",
        summary="one hidden layer of 128 on Fashion-MNIST",
        module="trainlab.workloads.fashion_mlp",
        defaults={"epochs": 5, "batch_size": 32, "optimizer": "adam", "lr": 0.001},
        model_defaults={"hidden": 128},
    ),
)

BUILTIN: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
