"""CostSpec: how the cost of a step is measured."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainlab.spec.base import Setting, Spec


class CostSpec(Spec):
    """A measurement of what a training step, or an inference step over the test set, costs."""

    mode: Literal["train", "inference", "both"] = "train"
    """The training step, the forward pass over the test set in eval mode, or one after the other."""
    processes: Annotated[PositiveInt, Setting("processes")] = 3
    """Fresh processes, one sample each: the steps of one process share its luck."""
    active_steps: Annotated[PositiveInt, Setting("steps")] = 10
    """Training steps the profiler looks at; an inference pass is profiled whole."""
    warmup_steps: Annotated[NonNegativeInt, Setting("steps")] = 10
    """Steps of a process that run before its clock starts; recorded, never averaged in."""
    budget_s: Annotated[PositiveFloat, Setting("seconds")] = 5.0
    """Measured steps of a process take at most this long."""
    tight: Annotated[float, Field(gt=0, lt=1), Setting("share")] = 0.005
    """A process stops early once the 95 % interval of its median step is this narrow."""
    weights: Literal["untrained", "trained", "both"] = "untrained"
    """Measure with fresh weights, with those a learn trial of the same study ended with, or both."""
    by_shape: Annotated[bool, Setting("true|false")] = False
    """Tell calls of an operator on different shapes apart; the profiler then takes longer."""
    trace_mb: Annotated[NonNegativeFloat, Setting("megabytes")] = 20.0
    """The most trace.json.gz may take; it then holds fewer steps. 0: no trace."""

    @property
    def one_mode(self) -> Literal["train", "inference"]:
        """The mode of a trial: a plan has split `both`."""
        assert self.mode != "both"
        return self.mode
