"""What the learn trials show: effects of factors on loss and accuracy, divergence, time to a target."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analyse.confounds import Confound, trial_confounds
from trainlab.analyse.contrast import Contrast, contrasts
from trainlab.analyse.evidence import ENDED_WELL, Evidence
from trainlab.analyse.findings.finding import Finding, arrow, num_seeds
from trainlab.analyse.time_to_target import EpochValue, time_to_target
from trainlab.spec.target import Target, target_of
from trainlab.stats.verdict import compare_all
from trainlab.words import Words
from trainlab.words.numbers import metric_difference, metric_value

ACCURACY = "test/accuracy"
USUAL = (ACCURACY, "test/loss", "train/loss")
"""The metrics that people ask about, the most wanted first."""

COMPARISON_FIELDS = (
    *("mean_a", "mean_b", "family", "margin", "fewest_seeds", "seeds_needed", "detectable"),
    *("num_dropped", "num_diverged"),
)
"""Fields of an effect that a comparison has under the same name."""


@dataclass(frozen=True, kw_only=True)
class Effect(Finding):
    """What a change of one factor does to a metric, seed by seed."""

    kind = "effect"
    section = "factors"
    rank = 1
    test = "learning"

    mean_a: float | None
    mean_b: float | None
    difference: float | None
    p: float | None
    family: int
    """Comparisons decided together."""
    margin: float | None
    fewest_seeds: int | None
    """Fewer never reach the level, whatever the data."""
    seeds_needed: int | None
    detectable: float | None
    num_dropped: int
    num_diverged: int

    def phrases(self, words: Words) -> dict[str, object]:
        metric, seeds = self.subject, num_seeds(self.n, words)

        def difference(value: float | None) -> str:
            return metric_difference(metric, value or 0.0, words("points"))

        return super().phrases(words) | {
            "metric": metric,
            "means": arrow(metric_value(metric, mean) for mean in (self.mean_a, self.mean_b)),
            "mean_of": seeds if self.n == 1 else words("mean_of_seeds", seeds=seeds),
            "difference": difference(self.difference),
            "margin": difference(self.margin).lstrip("+"),
            "within": self.interval_text(words, difference),
        }

    def statement(self, words: Words) -> str:
        if self.difference is None:
            return self.fill(words, "effect_unknown")
        effect = self.fill(words, "effect")
        if self.verdict != "cannot tell":
            return self.fill(words, f"effect_{self.verdict}", effect=effect)
        text = self.fill(words, "effect_open", effect=effect)
        if self.fewest_seeds is not None and self.n < self.fewest_seeds:
            too_few = self.fill(words, "seeds_too_few", fewest=self.fewest_seeds)
            return words.sentences(text, too_few)
        if self.seeds_needed is None:
            return text
        return words.sentences(text, words("seeds_would_do", needed=self.seeds_needed))

    @property
    def group(self) -> tuple[str, ...]:
        return "effect", self.factor or ""

    @property
    def weight(self) -> float:
        # Accuracy on the test set is what people ask about; then the largest effect.
        size = abs(self.difference or 0.0) if self.verdict != "equivalent" else 0.0
        return 1e6 * (self.subject == ACCURACY) + size / (1 + abs(self.mean_a or 0.0))


@dataclass(frozen=True, kw_only=True)
class NoReset(Effect):
    """The effect of never resetting gradients; the sentence says why."""

    kind = "no_reset"
    rank = 0

    def statement(self, words: Words) -> str:
        return words.sentences(super().statement(words), words("no_reset_why"))


@dataclass(frozen=True, kw_only=True)
class Diverged(Finding):
    """Trials of a cell whose loss stopped being finite."""

    kind = "diverged"
    section = "learning"
    rank = 2

    num_diverged: int
    median_step: float | None

    def statement(self, words: Words) -> str:
        where = "" if self.median_step is None else self.fill(words, "diverged_where")
        return self.fill(words, "diverged", where=where)


@dataclass(frozen=True, kw_only=True)
class TimeToTarget(Finding):
    """How long the trials of a cell took to reach a target."""

    kind = "time_to_target"
    section = "learning"
    rank = 12

    target: float
    num_reached: int
    median_epoch: float | None
    median_s: float | None

    def statement(self, words: Words) -> str:
        key = "target_reached" if self.num_reached else "target_never"
        return self.fill(words, key, target_text=metric_value(self.subject, self.target))

    @property
    def says_something(self) -> bool:
        return self.num_reached > 0

    @property
    def weight(self) -> float:
        return self.num_reached / self.n - 1e-9 * (self.median_s or 0.0)


def learn_findings(evidence: Evidence) -> Iterator[Finding]:
    """Effects first, then what went wrong, then time to the targets."""
    pairs = [pair for pair in contrasts(evidence.cells) if {*pair.ids} <= evidence.learned.keys()]
    confounds = [_confounds(evidence, pair) for pair in pairs]
    for metric in compared_metrics(evidence):
        yield from _effects(evidence, metric, pairs, confounds)
    yield from _divergence(evidence)
    for metric, target in evidence.study.targets.items():
        yield from _times_to_target(evidence, target_of(metric, target))


def compared_metrics(evidence: Evidence) -> list[str]:
    """The usual ones, then any of the workload's own on the test set."""
    usual = [name for name in USUAL if name in evidence.metrics]
    own = [name for name in evidence.metrics if name.startswith("test/")]
    return list(dict.fromkeys([*usual, *own]))


def _effects(
    evidence: Evidence,
    metric: str,
    pairs: Sequence[Contrast],
    confounds: Sequence[tuple[Confound, ...]],
) -> Iterator[Finding]:
    """One family per metric: all its comparisons are decided together."""
    values = {cell.id: evidence.values(cell.id, metric) for cell in evidence.cells}
    compared = compare_all(
        [(values[pair.reference.id], values[pair.other.id]) for pair in pairs],
        evidence.study.margins.get(metric),
    )
    for pair, comparison, also_differs in zip(pairs, compared, confounds, strict=True):
        never_resets = pair.factor == "zero_grad" and pair.levels[1] is False
        difference = comparison.difference
        yield (NoReset if never_resets else Effect)(
            subject=metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            difference=None if difference is None else difference.value,
            p=comparison.p_holm,
            n=comparison.n,
            interval=None if difference is None else difference.interval,
            verdict=comparison.verdict,
            confounds=also_differs,
            **{name: getattr(comparison, name) for name in COMPARISON_FIELDS},
        )


def _confounds(evidence: Evidence, pair: Contrast) -> tuple[Confound, ...]:
    """Of every two trials that are compared, each named once."""
    first, second = (evidence.learned[cell] for cell in pair.ids)
    confounds = (
        confound
        for seed, a in first.items()
        if (b := second.get(seed)) and a.trial.state == b.trial.state == "done"
        for confound in trial_confounds(a.trial, b.trial, pair.factors)
    )
    return tuple(dict.fromkeys(confounds))


def _divergence(evidence: Evidence) -> Iterator[Finding]:
    for cell, seeds in evidence.learned.items():
        trials = [learned.trial for learned in seeds.values() if learned.trial.state == "diverged"]
        steps = [trial.diverged_at_step for trial in trials if trial.diverged_at_step is not None]
        if trials:
            yield Diverged(
                subject="train/loss",
                cells=(cell,),
                num_diverged=len(trials),
                median_step=statistics.median(steps) if steps else None,
                n=len(seeds),
            )


def _times_to_target(evidence: Evidence, target: Target) -> Iterator[Finding]:
    metric = target.metric
    for cell in evidence.cells:
        trials = [
            [
                EpochValue(int(line["epoch"]), float(line["time_s"]), float(line[metric]))
                for line in learned.epochs
                if line.get(metric) is not None
            ]
            for learned in evidence.learned.get(cell.id, {}).values()
            # One that was stopped from outside might yet have reached it.
            if learned.trial.state in ENDED_WELL
        ]
        if not trials:
            continue
        times = time_to_target(trials, target)
        yield TimeToTarget(
            subject=metric,
            cells=(cell.id,),
            target=target.value,
            num_reached=times.num_reached,
            median_epoch=times.median_epoch,
            median_s=times.median_elapsed_s,
            n=times.num_trials,
        )
