"""Study: a question about a workload, resolved into cells, with everything needed to answer it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
    model_validator,
)

from trainlab.spec.base import RunName, Setting, Spec, seconds_of
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.script import ScriptSpec
from trainlab.spec.search import SearchSpec
from trainlab.spec.settings import Scalar, TrainSpec, pairs_of

# Cell: one combination of levels, with the settings that follow from it.

BASE = "base"
Levels = Mapping[str, Scalar]
"""Factor to level; a parameter of the model is called `model.<name>`."""


class Cell(Spec):
    """One combination of levels."""

    id: str
    """`base`, or its levels as `batch_size=16,lr=0.01`."""
    levels: dict[str, Scalar] = {}
    settings: TrainSpec


def cell_id(levels: Levels) -> str:
    """The levels as one word."""
    parts = (f"{short_name(name)}={level_text(level)}" for name, level in levels.items())
    return ",".join(parts) or BASE


def short_name(factor: str) -> str:
    """A factor as users call it: what belongs to the model or to a script needs no saying so."""
    return factor.removeprefix("model.").removeprefix("script.")


def level_text(level: Scalar) -> str:
    """A level as users write it: true, 0.001, adam."""
    if isinstance(level, bool):
        return str(level).lower()
    # Six digits read better, but two levels must never read the same.
    return f"{level:g}" if isinstance(level, float) and float(f"{level:g}") == level else str(level)


def combinations(vary: Mapping[str, Sequence[Scalar]], design: str) -> list[dict[str, Scalar]]:
    """The levels of each cell: the full grid, or the base and one change at a time."""
    if design == "grid":
        return [dict(zip(vary, levels, strict=True)) for levels in product(*vary.values())]
    return [{}, *({name: level} for name, levels in vary.items() for level in levels)]


def with_levels(settings: Mapping[str, Any], levels: Levels) -> dict[str, Any]:
    """The settings, overridden by a cell's levels; `model.hidden` sets one entry of `model`."""
    merged = dict(settings)
    for name, level in levels.items():
        outer, dot, inner = name.partition(".")
        # A flag gives a mapping as text.
        merged[outer] = {**pairs_of(merged.get(outer, {})), inner: level} if dot else level
    return merged


# CostSpec: how the cost of a step is measured.

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
    ratio_within: Annotated[float, Field(gt=0, lt=1), Setting("share")] = 0.05
    """The half-width of the 95% interval of a ratio between settings that is narrow enough."""
    budget_s: Annotated[
        PositiveFloat,
        BeforeValidator(lambda given: seconds_of(given) if isinstance(given, str) else given),
        Setting("time", option="cost_budget"),  # that of a run is --budget
    ] = 120.0
    """Timing ends after about this long, all modes together, as 90s or 5m; sooner where every ratio is
    known well enough. `processes` are run in any case, with short turns where time is up."""
    active_steps: Annotated[PositiveInt, Setting("steps")] = 5
    """Training steps the profiler looks at; of an inference pass, all up to 400."""
    warmup_steps: Annotated[
        NonNegativeInt,
        Setting("steps", option="cost_warmup_steps"),  # that of learning is --warmup-steps
    ] = 10
    """Steps of a process that run before its clock starts, and more until they no longer get faster;
    recorded, never averaged in."""
    turns_s: Annotated[PositiveFloat, Setting("seconds")] = 2.0
    """The turns of a process take at most so long: more processes tell more than more turns."""
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
        return ("train", "inference") if self.mode == "both" else (self.mode,)


def cost_margins(cost: CostSpec | None) -> dict[str, float]:
    """The margins of a profile, by what is compared; none where nothing is measured."""
    if cost is None:
        return {}
    return {f"{mode}/sample_us": COST_MARGIN for mode in cost.modes}


# Targets: the value of a metric that is good enough, and from which side it is reached.

LOWER_IS_BETTER = re.compile(
    r".*(loss|error)|err|n?r?mse|r?mae|[sw]?mape|wape|rmsle|nll|negative|entropy|perplexity|ppl|[wce]er"
    r"|ece|brier|fid|regret|lpips|crps|hamming|chamfer|hinge|latency|b?ce|kld?|divergence|bits|bp[cd]"
    r"|dist|distance|gap"
)
"""A word in the name of a metric that is better when lower."""
HIGHER_IS_BETTER = re.compile(
    r".*(accuracy|acc|iou|score|reward)|top\d*|m?ap\d*|precision|recall|sensitivity|specificity|au(ro|pr)?c"
    r"|roc|f\d|fbeta|dice|jaccard|kappa|mcc|r2|explained|correlation|pearson|spearman|ndcg|mrr|bleu\d*"
    r"|rouge\w*|meteor|psnr|ssim|likelihood|elbo|returns?|success|wins?"
)
"""A word in that of one that is better when higher. Of all others the name does not tell."""

Bound = Literal["at most", "at least"]
BOUNDS: dict[str, Bound] = {"<=": "at most", ">=": "at least"}
_BOUND_AND_NUMBER = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Target:
    """What is good enough: accuracy at least, or loss at most, the value."""

    metric: str
    bound: Bound
    value: float

    def is_met_by(self, value: float) -> bool:
        """Never by a value that is not finite."""
        is_met = value >= self.value if self.bound == "at least" else value <= self.value
        return is_met and math.isfinite(value)


def lower_is_better(metric: str) -> bool | None:
    """Whether a metric is better when lower, by its name; None where that does not tell."""
    words = re.split(r"[^a-z0-9]+", metric.rpartition("/")[2].lower())
    if any(map(LOWER_IS_BETTER.fullmatch, words)):
        return True
    return False if any(map(HIGHER_IS_BETTER.fullmatch, words)) else None


def target_of(metric: str, written: float | str, is_lower: bool | None = None) -> Target:
    """A target: `<=` and `>=` give its bound; that of a bare number is by which way is better."""
    bound: Bound = "at most" if is_lower else "at least"
    number = written
    if isinstance(written, str):
        match = _BOUND_AND_NUMBER.fullmatch(written)
        if match is None:
            raise ValueError(written)
        bound, number = BOUNDS[match[1]], match[2]
    if not math.isfinite(float(number)):
        raise ValueError(written)
    return Target(metric, bound, float(number))


def _checked(value: object) -> object:
    """One line for a wrong target: pydantic would write one for a number and one for a text."""
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            target_of("", value)
            return value
    except ValueError:
        pass
    raise ValueError(f'got {value!r}, must be a number, or a text as "<= 0.1" or ">= 0.9"')


WrittenTarget = Annotated[
    float | str,
    BeforeValidator(_checked),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*(<=|>=)\s*\S+\s*$"}]}
    ),
]
"""As people write it: 0.97, or "<= 0.1"."""


# Objective: the metric that the answer goes by, and which way of it is better.

PARTS = ("test", "val", "train")
"""What of the data a metric is of: begins its name, as in `test/accuracy`. The most wanted first."""
PERCENT, LOGGED = "_percent", "_logged"
"""End the names of metrics of a script: of an accuracy that it tells in per cent, and of one that is seen
in its backward passes, too."""


def objective_of(text: object) -> tuple[str, bool | None]:
    """The name in `NAME`, `NAME:min` or `NAME:max`, and whether it is better when lower, where that is
    said."""
    name, colon, way = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not name.strip() or (colon and way not in ("min", "max")):
        raise ValueError(f"got {text!r}, must be a metric, as accuracy, val/miou or reward:max")
    return name.strip(), {"min": True, "max": False}.get(way)


def recorded_as(name: str) -> list[str]:
    """What a metric with or without its part may be called in the records, the most wanted first."""
    parts = ("", *(f"{part}/" for part in PARTS))
    return [part + name + end for part in parts for end in ("", PERCENT, LOGGED)]


def without_part(name: str) -> str:
    """`test/miou` as `miou`."""
    part, _, rest = name.partition("/")
    return rest if rest and part in PARTS else name


OF_SPREADS = ("epochs", "train_samples")
"""Settings that stand beside a known noise, because it is that of no others."""
TEXT_OR_TABLE = {"anyOf": [{"type": "string"}, {"type": "object"}]}
"""For editors: a probe as text, or as a table."""


class StudyBase(Spec):
    """What a question and the study that it becomes have in common."""

    workload: str
    """A built-in workload's name, or `file.py:name` of your own."""
    title: str = ""
    """The question in words, for the report."""
    learn: bool = True
    """Train every cell with every seed."""
    cost: CostSpec | None = None
    """Measure what a step costs in every cell, in fresh processes."""
    objective: Annotated[str, AfterValidator(lambda text: objective_of(text) and text)] | None = (
        None
    )
    """The metric that the answer goes by, as accuracy, val/miou or reward:max (:min and :max say which way
    is better). Not given: the workload's; else one that you named, of the test first."""
    targets: dict[str, WrittenTarget] = {}
    """Metric to the value whose reaching is timed, as "test/accuracy" = 0.97 or "test/mae" = "<= 0.1"; a
    bare number must be reached from the side that is worse."""
    margins: dict[str, PositiveFloat] = {}
    """Metric to the difference that would not matter: within it, cells can be called equivalent. Of a cost,
    "train/sample_us" or "inference/sample_us", the share."""
    spreads: dict[str, dict[str, PositiveFloat]] = {}
    """Standard deviation between seeds where it is known, by data (full, bundled) and metric, beside the
    epochs (and train_samples, if not all) that it is of: what can be shown is then said before training."""
    probes: tuple[Annotated[ProbeSpec, WithJsonSchema(TEXT_OR_TABLE)], ...] = ()
    """What to watch inside the network while it trains, as "relu:grad_input:sq_sum"."""
    tensorboard: bool = True
    """Write TensorBoard event files beside the records."""
    save_model: bool = False
    """Keep the trained weights."""


class Study(StudyBase):
    """One workload, its cells and the seeds to repeat each with."""

    name: RunName
    """Names the run folder."""
    settings: TrainSpec
    """The base, and all there is where nothing varies."""
    cells: tuple[Cell, ...] = ()
    """Every combination of levels that is compared; empty: the base alone."""
    same_as_base: tuple[str, ...] = ()
    """Cells that were asked for and are no other than the base: it stands for them."""
    seeds: tuple[NonNegativeInt, ...] = (1,)
    """One learn trial per cell and seed; initial weights, data order and dropout derive from it alone."""
    looks: tuple[PositiveInt, ...] = ()
    """Numbers of seeds after which verdicts are made, where seeds are added until all is decided; the
    error rate holds over all of them. Empty: one look, at the end."""
    higher_is_better: dict[str, bool] = {}
    """Of the metrics that say so themselves; of others it follows from their name."""
    script: ScriptSpec | None = None
    """The script that is watched, where the study is of one; `workload` is then its file."""
    search: SearchSpec | None = None
    """How its cells are found, where they are looked for: until then the base is all there is."""

    def is_better_lower(self, metric: str) -> bool | None:
        """Whether a metric is better when lower: by the objective, the metric itself or its name."""
        named, is_lower = objective_of(self.objective) if self.objective else ("", None)
        if is_lower is not None and metric in recorded_as(without_part(named)):
            return is_lower
        higher = self.higher_is_better.get(metric.rpartition("/")[2])
        return lower_is_better(metric) if higher is None else not higher

    def target(self, metric: str) -> Target:
        """The target of a metric, with the side from which it is reached."""
        return target_of(metric, self.targets[metric], self.is_better_lower(metric))

    @property
    def all_cells(self) -> tuple[Cell, ...]:
        """The cells, at least the base."""
        return self.cells or (Cell(id=BASE, settings=self.settings),)

    @property
    def num_learn(self) -> int:
        """Learn trials that are planned."""
        return len(self.all_cells) * len(self.seeds) if self.learn else 0

    @property
    def is_one_script(self) -> bool:
        """Whether all there is to do is to run a script once, as its user would."""
        is_watched = self.script is not None and self.script.diagnosis is None
        return is_watched and self.num_learn == 1 and not self.trains_several and self.cost is None

    @property
    def trains_several(self) -> bool:
        """Whether more than one learn trial is planned, or a search will plan some."""
        return self.num_learn > 1 or self.search is not None

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for cell in self.cells for name in cell.levels))

    @model_validator(mode="after")
    def _can_be_answered(self) -> "Study":
        if self.cost is None and not self.learn:
            raise ValueError(
                "learn: got false without a cost: there is nothing to do; add [cost] or leave it out"
            )
        if self.save_model and not self.learn:
            raise ValueError("save_model: got true, but nothing is trained here; leave it out")
        if self.cost is not None and self.cost.weights != "untrained" and not self.learn:
            raise ValueError(
                f"cost.weights: got {self.cost.weights}, but nothing is trained here; "
                "use `trainlab run … --profile`"
            )
        return self
