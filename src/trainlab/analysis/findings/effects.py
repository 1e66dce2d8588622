"""What a change of one factor does to learning: metrics seed by seed, and how often it fails."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trainlab.analysis.confounds import Confound, trial_confounds
from trainlab.analysis.contrast import Contrast, contrasts, with_like_seeds
from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.finding import HOPELESS, Cause, Finding, arrow, num_seeds
from trainlab.analysis.metrics import ACCURACY, compared_metrics, limits_of, resolution_of
from trainlab.stats.contrasts import LEVEL
from trainlab.stats.failures import Failures
from trainlab.stats.superiority import superiority
from trainlab.stats.verdict import FEWEST_SEEDS, Comparison, compare_all
from trainlab.words import Words
from trainlab.words.numbers import is_share, metric_value

COMPARISON_FIELDS = (
    *("mean_a", "mean_b", "difference", "p", "n", "interval", "confidence", "verdict", "family"),
    *("margin", "seeds_needed", "detectable", "std", "num_dropped", "num_diverged", "is_withheld"),
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
    """Adjusted for all comparisons of the metric."""
    confidence: float
    """Of the interval, which holds for all comparisons of the metric together."""
    family: int
    """Comparisons decided together."""
    margin: float | None
    seeds_needed: int | None
    detectable: float | None
    std: float | None
    """Of a run, as estimated from all cells."""
    is_withheld: bool
    """Whether it is not called equivalent only because the cells diverged at different rates."""
    num_failed: int
    """Trials of both cells that failed, were interrupted or did not run."""
    num_dropped: int
    num_diverged: int
    diverged_a: int
    diverged_b: int
    chance: float | None
    """That a run of the second cell ends above one of the first, ties counted half."""
    chance_low: float | None
    chance_high: float | None

    def phrases(self, words: Words) -> dict[str, object]:
        metric, seeds = self.subject, num_seeds(self.n, words)
        difference = partial(self.difference_text, words)
        return super().phrases(words) | {
            "metric": words.metric(metric),
            "first_name": self.cells[0],
            "second_name": self.cells[-1],
            "means": arrow(metric_value(metric, mean) for mean in (self.mean_a, self.mean_b)),
            "mean_of": seeds if self.n == 1 else words("mean_of_seeds", seeds=seeds),
            "difference": difference(self.difference),
            "margin": self._margin_text(words),
            "detectable": difference(self.detectable).lstrip("+"),
            "within": self.difference_interval(words),
        }

    def _margin_text(self, words: Words) -> str:
        """As it was stated: `0.50 points`, `0.05`."""
        if self.margin is None or is_share(self.subject):
            return self.difference_text(words, self.margin).lstrip("+")
        return f"{self.margin:g}"

    def statement(self, words: Words) -> str:
        return words.sentences(self._verdict_text(words), *self._left_out(words))

    def _verdict_text(self, words: Words) -> str:
        if self.difference is None:
            return self.fill(words, "effect_unknown")
        effect = self.fill(words, "effect")
        if self.verdict == "different" and self._is_small:
            return self.fill(words, "effect_small", effect=effect)
        if self.verdict != "cannot tell":
            return self.fill(words, f"effect_{self.verdict}", effect=effect)
        if self.is_withheld:
            key = "effect_withheld" if self.interval else "effect_withheld_identical"
            return self.fill(words, key, effect=effect)
        text = self.fill(words, "effect_open", effect=effect)
        if self.open_because in HOPELESS:
            return text
        if self.n < FEWEST_SEEDS:
            return words.sentences(text, self.fill(words, "seeds_too_few", fewest=FEWEST_SEEDS))
        able = self.fill(words, "seeds_find") if self.detectable else ""
        would_do = self.fill(words, "seeds_would_do") if self.seeds_needed else ""
        return words.sentences(*filter(None, (text, able, would_do)))

    @property
    def _is_small(self) -> bool:
        """Whether all that the interval holds lies within the margin."""
        if self.margin is None or self.interval is None:
            return False
        return max(abs(self.interval.low), abs(self.interval.high)) < self.margin

    def _left_out(self, words: Words) -> Iterator[str]:
        if self.diverged_a or self.diverged_b:
            yield self.fill(words, "seeds_diverged")

    @property
    def open_because(self) -> Cause | None:
        if self.verdict != "cannot tell":
            return None
        if self.is_withheld:
            return "rates"
        if self.n >= FEWEST_SEEDS:
            return "noise"
        if self.diverged_a or self.diverged_b:
            return "diverged"
        return "failed" if self.num_failed else "single"

    @property
    def repeats_row(self) -> bool:
        is_explained = self._is_small or self.diverged_a > 0 or self.diverged_b > 0
        return self.verdict != "cannot tell" and not is_explained

    @property
    def weight(self) -> float:
        # Accuracy on the test set is what people ask about; then the largest effect.
        same = self.verdict in ("equivalent", "identical")
        size = 0.0 if same else abs(self.difference or 0.0)
        return 1e6 * (self.subject == ACCURACY) + size / (1 + abs(self.mean_a or 0.0))


@dataclass(frozen=True, kw_only=True)
class NoReset(Effect):
    """The effect of never resetting gradients; the sentence says why."""

    kind = "no_reset"
    rank = 0

    @property
    def repeats_row(self) -> bool:
        return False

    def statement(self, words: Words) -> str:
        return words.sentences(super().statement(words), words("no_reset_why"))


@dataclass(frozen=True, kw_only=True)
class FailureRate(Finding):
    """How often training fails in one cell and in another."""

    kind = "failure_rate"
    section = "factors"
    rank = 1
    test = "failures"

    num_a: int
    of_a: int
    num_b: int
    of_b: int
    p: float
    """Fisher's exact test, adjusted for all such comparisons."""

    def statement(self, words: Words) -> str:
        return self.fill(words, f"failure_{(self.verdict or '').replace(' ', '_')}")

    @property
    def weight(self) -> float:
        return abs(self.num_b / self.of_b - self.num_a / self.of_a)


def effect_findings(evidence: Evidence) -> Iterator[Finding]:
    """For every metric all its comparisons, decided together; then how often training failed."""
    pairs = _learned_pairs(evidence)
    confounds = [_confounds(evidence, pair) for pair in pairs]
    metrics = compared_metrics(evidence)
    for metric in metrics:
        yield from _effects(evidence, metric, pairs, confounds)
    for metric in metrics[:1]:
        yield from _failure_rates(evidence, metric, pairs)


def _learned_pairs(evidence: Evidence) -> list[Contrast]:
    """The contrasts of which trials of both cells have ended."""
    return [pair for pair in contrasts(evidence.cells) if {*pair.ids} <= evidence.learned.keys()]


def _compared(evidence: Evidence, metric: str, pairs: Sequence[Contrast]) -> tuple[Comparison, ...]:
    """The comparisons of a metric, as one family."""
    cells = with_like_seeds(evidence.cells)
    values = {cell.id: evidence.values(cell.id, metric) for cell in cells}
    limits = limits_of(metric, (one for seeds in values.values() for one in seeds.values()))
    return compare_all(
        values,
        [pair.ids for pair in pairs],
        evidence.study.margins.get(metric),
        looks=evidence.study.looks,
        resolution=resolution_of(evidence, metric),
        most=limits.high - limits.low,
    )


@dataclass(frozen=True)
class OpenComparisons:
    """What is left to decide: what seeds are added for, and what they are not."""

    num_open: int
    """Those that further seeds may decide."""
    num_hopeless: int
    """Those that seeds cannot decide: a cell in which none trains, or rates of divergence that differ."""


def open_comparisons(evidence: Evidence) -> OpenComparisons:
    """Of the metrics that have a margin, else of the first.

    Without a margin, cells that do not differ are never decided.
    """
    metrics = compared_metrics(evidence)
    asked = [metric for metric in metrics if metric in evidence.study.margins] or metrics[:1]
    pairs = _learned_pairs(evidence)
    num_open = num_hopeless = 0
    for metric in asked:
        for pair, comparison in zip(pairs, _compared(evidence, metric, pairs), strict=True):
            if comparison.verdict == "cannot tell":
                never_trains = any(not evidence.finite_values(cell, metric) for cell in pair.ids)
                is_hopeless = comparison.is_withheld or never_trains
                num_hopeless += is_hopeless
                num_open += not is_hopeless
    if not metrics:
        # Not one trial of any cell ended well.
        num_hopeless = len(pairs)
    return OpenComparisons(num_open, num_hopeless)


def _effects(
    evidence: Evidence,
    metric: str,
    pairs: Sequence[Contrast],
    confounds: Sequence[tuple[Confound, ...]],
) -> Iterator[Finding]:
    comparisons = _compared(evidence, metric, pairs)
    for pair, comparison, also_differs in zip(pairs, comparisons, confounds, strict=True):
        never_resets = pair.factor == "zero_grad" and pair.levels[1] is False
        chance = superiority(*(evidence.finite_values(cell, metric) for cell in pair.ids))
        yield (NoReset if never_resets else Effect)(
            subject=metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            diverged_a=comparison.failures.num_a,
            diverged_b=comparison.failures.num_b,
            num_failed=sum(_num_failed(evidence, cell) for cell in pair.ids),
            chance=None if chance is None else chance.value,
            chance_low=None if chance is None else chance.interval.low,
            chance_high=None if chance is None else chance.interval.high,
            confounds=also_differs,
            **{name: getattr(comparison, name) for name in COMPARISON_FIELDS},
        )


def _num_failed(evidence: Evidence, cell: str) -> int:
    trials = (t for t in evidence.trials if t.kind == "learn" and t.cell == cell)
    return sum(trial.state not in ENDED_WELL for trial in trials)


def _failure_rates(evidence: Evidence, metric: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    """Of pairs in which the one cell diverged more often than the other."""
    found = [
        (pair, failures, p)
        for pair in pairs
        if (failures := Failures.of(*(evidence.values(cell, metric) for cell in pair.ids))).differ
        and (p := failures.p) is not None
    ]
    for pair, failures, p in found:
        adjusted = min(1.0, p * len(found))
        yield FailureRate(
            subject=metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            num_a=failures.num_a,
            of_a=failures.of_a,
            num_b=failures.num_b,
            of_b=failures.of_b,
            p=adjusted,
            n=min(failures.of_a, failures.of_b),
            verdict="different" if adjusted <= LEVEL else "cannot tell",
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
