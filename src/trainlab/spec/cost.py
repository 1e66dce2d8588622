"""CostSpec: how the cost of a step is measured."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainlab.spec.base import Setting, Spec

COST_MARGIN = 0.05
"""Two profiles whose times differ by less are equivalent, where that can be shown."""


class CostSpec(Spec):
    """A measurement of what a training step, or an inference step over the test set, costs."""

    mode: Literal["train", "inference", "both"] = "train"
    """The training step, the forward pass over the test set in eval mode, or one after the other."""
    processes: Annotated[PositiveInt, Setting("processes")] = 3
    """Fresh processes of each setting at least; one is one sample: steps of a process share its luck."""
    max_processes: Annotated[PositiveInt, Setting("processes")] = 12
    """The most: further ones are added until every ratio between settings is known to `ratio_within`."""
    extra_s: Annotated[NonNegativeFloat, Setting("seconds")] = 60.0
    """Further processes are added for so long at most. 0: none are."""
    ratio_within: Annotated[float, Field(gt=0, lt=1), Setting("share")] = 0.05
    """The half-width of the 95% interval of a ratio between settings that is narrow enough."""
    active_steps: Annotated[PositiveInt, Setting("steps")] = 10
    """Training steps the profiler looks at; of an inference pass, all up to 400."""
    warmup_steps: Annotated[
        NonNegativeInt,
        Setting("steps", option="cost_warmup_steps"),  # that of learning is --warmup-steps
    ] = 10
    """Steps of a process that run before its clock starts, and more until they no longer get faster;
    recorded, never averaged in."""
    budget_s: Annotated[PositiveFloat, Setting("seconds")] = 5.0
    """The turns of a process take about this long altogether."""
    tight: Annotated[float, Field(gt=0, lt=1), Setting("share")] = 0.005
    """Processes that take turns stop early once their ratios, within this one measurement, have a 95%
    interval of at most this half-width; a process by itself, once its median step has."""
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

    @property
    def modes(self) -> tuple[Literal["train", "inference"], ...]:
        """The modes that are measured."""
        return ("train", "inference") if self.mode == "both" else (self.mode,)


def cost_margins(cost: CostSpec | None) -> dict[str, float]:
    """The margins of a profile, by what is compared; none where nothing is measured."""
    if cost is None:
        return {}
    return {f"{mode}/sample_us": COST_MARGIN for mode in cost.modes}
