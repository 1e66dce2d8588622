"""What the learn trials show beside the effects of factors: divergence, time to a target."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from trainlab.analyse.evidence import ENDED_WELL, Evidence
from trainlab.analyse.findings.effects import effect_findings
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.patterns import pattern_findings
from trainlab.analyse.findings.spread import spread_findings
from trainlab.analyse.time_to_target import EpochValue, time_to_target
from trainlab.spec.target import Target, target_of
from trainlab.words import Words
from trainlab.words.numbers import metric_value


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
    yield from effect_findings(evidence)
    yield from pattern_findings(evidence)
    yield from spread_findings(evidence)
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
