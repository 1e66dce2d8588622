"""WorkloadFacts: what a study needs to know of a workload, without its model, data or torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainlab.spec.base import did_you_mean
from trainlab.spec.settings import TrainSpec

AS_OBJECT = " (given as an object)"
"""Ends the name of a workload that was given from Python, and that no other process finds by its name."""


def is_script(reference: str) -> bool:
    """Whether what a study names is a script that is watched, and no workload."""
    return reference.endswith(".py")


@dataclass(frozen=True)
class WorkloadFacts:
    """A workload as it is asked about."""

    name: str
    defaults: Mapping[str, Any]
    """Settings to start from, as in TrainSpec."""
    parameters: tuple[str, ...] | None
    """The names of the model's parameters; None where it takes any."""
    metrics: tuple[str, ...]
    """Beside the loss."""
    model_defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the model's parameters are where they are not set."""
    loss_parameters: tuple[str, ...] | None = ()
    """Those of the loss or step beyond what we give it; None where it takes any."""
    data_parameters: tuple[str, ...] | None = ()
    """Those of the function that gives the data; None where it takes any."""
    higher_is_better: Mapping[str, bool] = field(default_factory=dict)
    """Of the metrics that say so themselves."""
    objective: str | None = None
    """The metric that its answers go by."""
    logs_more: bool = False
    """Whether a step of its own may log further metrics."""

    def problems(self, settings: TrainSpec) -> Iterator[str]:
        """Parameters of the model, the loss and the data that there are not."""
        asked = (
            ("model", settings.model, self.parameters),
            ("loss", settings.loss, self.loss_parameters),
            ("data_options", settings.data_options, self.data_parameters),
        )
        for place, given, names in asked:
            for name in given:
                if names is not None and name not in names:
                    has = f"it has {', '.join(names)}" if names else "it has none"
                    hint = did_you_mean(name, names)
                    yield f"{place}.{name}: {self.name} has no such parameter; {has}{hint}"


def num_held_out(share: float, num_train: int) -> int:
    """Samples that a share of so many is, for validation; at least one is left on either side."""
    return min(max(1, round(share * num_train)), num_train - 1)


def too_large(settings: TrainSpec, num_train: int, what: str) -> str | None:
    """The problem of a batch, or a part of the data, that there are not enough samples for."""
    size, wanted, share = settings.batch_size, settings.train_samples, settings.val_fraction
    has, left = f"but {what} has {num_train:,} samples", num_train
    if wanted is not None:
        if wanted > num_train:
            return f"train_samples: got {wanted}, {has}; use at most {num_train}"
        has, left = f"but train_samples is {wanted:,}", wanted
    if share:
        left -= num_held_out(share, left)
        has = f"but val_fraction {share:g} leaves {left:,} training samples"
    return f"batch_size: got {size}, {has}; use at most {left}" if size > left else None
