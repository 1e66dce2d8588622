"""WorkloadFacts: what a study needs to know of a workload, without its model, data or torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainlab.errors import WorkloadError


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

    def check_parameters(self, given: Mapping[str, Any]) -> None:
        """Raises a WorkloadError that names the parameters there are, where one is not among them."""
        names = self.parameters
        unknown = [] if names is None else [name for name in given if name not in names]
        if unknown:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise WorkloadError(f"model.{unknown[0]}: {self.name} has no such parameter; {has}")
