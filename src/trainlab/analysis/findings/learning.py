"""What the learn trials show beside the effects of factors: divergence, time to a target."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from trainlab.analysis.contrast import contrasts
from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.finding import Finding, arrow
from trainlab.analysis.findings.best import best_findings
from trainlab.analysis.findings.effects import Effect, effect_findings
from trainlab.analysis.findings.patterns import pattern_findings
from trainlab.analysis.findings.spread import spread_findings
from trainlab.analysis.findings.test_set import confused_findings, sampling_findings
from trainlab.analysis.metric_table import metric_table
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.time_to_target import EpochValue, time_to_target
from trainlab.spec.study import Target, target_of
from trainlab.stats.contrasts import LEVEL
from trainlab.stats.ranks import rank_p
from trainlab.words import Words
from trainlab.words.numbers import metric_value


@dataclass(frozen=True, kw_only=True)
class Diverged(Finding):
    """Trials of a cell whose loss stopped being finite, or exploded."""

    kind = "diverged"
    section = "learning"
    rank = 2

    num_diverged: int
    num_in_training: int
    num_in_test: int
    """Trials whose training losses all were finite, but not the loss on the test set."""
    median_step: float | None
    """Of those in training: the first update whose loss was not finite."""

    def statement(self, words: Words) -> str:
        parts = []
        if self.median_step is not None:
            key = "diverged_where_some" if self.num_in_test else "diverged_where"
            parts.append(self.fill(words, key))
        if self.num_in_test:
            parts.append(self.fill(words, "diverged_in_test_only"))
        return self.fill(words, "diverged", where="".join(parts))


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
        if self.num_reached and self.median_epoch is None:
            key = "target_seldom"
        return self.fill(
            words,
            key,
            target_text=metric_value(self.subject, self.target),
            epochs=_epochs(self.median_epoch, words),
        )

    @property
    def says_something(self) -> bool:
        return self.num_reached > 0

    @property
    def weight(self) -> float:
        return self.num_reached / self.n - 1e-9 * (self.median_s or 0.0)


@dataclass(frozen=True, kw_only=True)
class TimeDifference(Finding):
    """Whether a change of one factor makes the target be reached earlier, or at all."""

    kind = "time_difference"
    section = "factors"
    test = "times"

    target: float
    epoch_a: float | None
    """The median over trials; None where half or more never reached it."""
    epoch_b: float | None
    never_a: int
    never_b: int
    p: float
    """Of the rank sum, by permutation, adjusted for all such comparisons."""

    def statement(self, words: Words) -> str:
        first, second = (_epochs(epoch, words) for epoch in (self.epoch_a, self.epoch_b))
        return self.fill(
            words,
            "time_different" if self.verdict == "different" else "time_open",
            target_text=metric_value(self.subject, self.target),
            times=arrow((first, second)),
        )


def _epochs(epoch: float | None, words: Words) -> str:
    if epoch is None:
        return words("never")
    return words.counted("one_epoch", "epochs", epoch)


def learn_findings(evidence: Evidence) -> Iterator[Finding]:
    """Effects first, then what went wrong, then time to the targets."""
    effects = list(effect_findings(evidence))
    yield from effects
    # For the metric that people ask about first; the tables have the others.
    for metric in compared_metrics(evidence)[:1]:
        table = metric_table(evidence, metric)
        if len(table.cells) > 1:
            own = [one for one in effects if isinstance(one, Effect) and one.subject == metric]
            yield from best_findings(evidence, table, own)
            yield from pattern_findings(evidence, table)
        yield from spread_findings(evidence, metric)
        yield from sampling_findings(evidence, table)
    yield from confused_findings(evidence)
    yield from _divergence(evidence)
    for metric, target in evidence.study.targets.items():
        yield from _times_to_target(evidence, target_of(metric, target))


def _divergence(evidence: Evidence) -> Iterator[Finding]:
    for cell, seeds in evidence.learned.items():
        trials = [learned.trial for learned in seeds.values() if learned.trial.state == "diverged"]
        steps = [trial.diverged_at_step for trial in trials if trial.diverged_at_step is not None]
        if trials:
            yield Diverged(
                subject="train/loss",
                cells=(cell,),
                num_diverged=len(trials),
                num_in_training=len(steps),
                num_in_test=len(trials) - len(steps),
                median_step=statistics.median(steps) if steps else None,
                n=len(seeds),
            )


def _times_to_target(evidence: Evidence, target: Target) -> Iterator[Finding]:
    """Of every cell, then every cell against its reference."""
    times = {
        cell.id: time_to_target(trials, target)
        for cell in evidence.cells
        if (trials := _trials_of(evidence, cell.id, target.metric))
    }
    for cell, reached in times.items():
        yield TimeToTarget(
            subject=target.metric,
            cells=(cell,),
            target=target.value,
            num_reached=reached.num_reached,
            median_epoch=reached.median_epoch,
            median_s=reached.median_elapsed_s,
            n=reached.num_trials,
        )
    pairs = [pair for pair in contrasts(evidence.cells) if {*pair.ids} <= times.keys()]
    tested = [
        (pair, p)
        for pair in pairs
        if (p := rank_p(*(times[cell].epochs for cell in pair.ids))) is not None
    ]
    for pair, p in tested:
        a, b = (times[cell] for cell in pair.ids)
        adjusted = min(1.0, p * len(tested))
        yield TimeDifference(
            subject=target.metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            target=target.value,
            epoch_a=a.median_epoch,
            epoch_b=b.median_epoch,
            never_a=a.num_trials - a.num_reached,
            never_b=b.num_trials - b.num_reached,
            p=adjusted,
            n=min(a.num_trials, b.num_trials),
            verdict="different" if adjusted <= LEVEL else "cannot tell",
        )


def _trials_of(evidence: Evidence, cell: str, metric: str) -> list[list[EpochValue]]:
    return [
        [
            EpochValue(int(line["epoch"]), float(line["time_s"]), float(line[metric]))
            for line in learned.epochs
            if line.get(metric) is not None
        ]
        for learned in evidence.learned.get(cell, {}).values()
        # One that was stopped from outside might yet have reached it.
        if learned.trial.state in ENDED_WELL
    ]
