"""What the learn trials show: effects of factors on loss and accuracy, divergence, time to quality."""

import statistics
from collections.abc import Iterator, Sequence

from trainlab.analyse.confounds import Confound, trial_confounds
from trainlab.analyse.contrast import Contrast, contrasts
from trainlab.analyse.evidence import ENDED_WELL, Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.time_to_target import Point, time_to_quality
from trainlab.spec.target import Target, target_of
from trainlab.stats.verdict import Comparison, compare_all

TEST = "paired t and exact sign flip, Holm over the family"
SUBJECTS = ("test/accuracy", "test/loss", "train/loss")


def learn_findings(evidence: Evidence) -> Iterator[Finding]:
    """Effects first, then what went wrong, then time to the targets."""
    pairs = [pair for pair in contrasts(evidence.cells) if _ran(evidence, pair)]
    confounds = [_confounds(evidence, pair) for pair in pairs]
    for metric in subjects(evidence):
        yield from _effects(evidence, metric, pairs, confounds)
    yield from _divergence(evidence)
    for metric, asked in evidence.study.targets.items():
        yield from _quality(evidence, target_of(metric, asked))


def subjects(evidence: Evidence) -> list[str]:
    """The metrics that are compared: the usual ones, then any of the workload's own on the test set."""
    known = evidence.metrics()
    usual = [name for name in SUBJECTS if name in known]
    return usual + [name for name in known if name.startswith("test/") and name not in usual]


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
    for pair, found, also in zip(pairs, compared, confounds, strict=True):
        yield _effect(metric, pair, found, also)


def _ran(evidence: Evidence, pair: Contrast) -> bool:
    return pair.reference.id in evidence.learned and pair.other.id in evidence.learned


def _effect(
    metric: str, pair: Contrast, found: Comparison, confounds: tuple[Confound, ...]
) -> Finding:
    resets = pair.factor == "zero_grad" and pair.levels[1] is False
    return Finding(
        kind="no_reset" if resets else "effect",
        subject=metric,
        factor=pair.factor,
        levels=pair.levels,
        cells=(pair.reference.id, pair.other.id),
        numbers={
            "mean_a": found.mean_a,
            "mean_b": found.mean_b,
            "difference": None if found.difference is None else found.difference.value,
            "p": found.p_holm,
            "family": found.family,
            "margin": found.margin,
            "fewest_seeds": found.fewest_seeds,
            "seeds_needed": found.seeds_needed,
            "detectable": found.detectable,
            "num_dropped": found.num_dropped,
            "num_diverged": found.num_diverged,
        },
        n=found.n,
        interval=None if found.difference is None else found.difference.interval,
        test=TEST,
        verdict=found.verdict,
        confounds=confounds,
    )


def _confounds(evidence: Evidence, pair: Contrast) -> tuple[Confound, ...]:
    """Of every two trials that are compared, each told once."""
    first, second = (evidence.learned[cell.id] for cell in (pair.reference, pair.other))
    factors = frozenset(pair.factor.split(","))
    found = (
        one
        for seed, a in first.items()
        if (b := second.get(seed)) and a.trial.state == b.trial.state == "done"
        for one in trial_confounds(a.trial, b.trial, factors)
    )
    return tuple(dict.fromkeys(found))


def _divergence(evidence: Evidence) -> Iterator[Finding]:
    for cell, seeds in evidence.learned.items():
        gone = [one.trial for one in seeds.values() if one.trial.state == "diverged"]
        steps = [trial.diverged_at_step for trial in gone if trial.diverged_at_step is not None]
        if gone:
            median = statistics.median(steps) if steps else None
            numbers = {"num_diverged": len(gone), "median_step": median}
            yield Finding(
                kind="diverged",
                subject="train/loss",
                cells=(cell,),
                numbers=numbers,
                n=len(seeds),
            )


def _quality(evidence: Evidence, target: Target) -> Iterator[Finding]:
    metric = target.metric
    for cell in evidence.cells:
        seeds = evidence.learned.get(cell.id, {})
        trials = [
            [
                Point(int(line["epoch"]), float(line["time_s"]), float(line[metric]))
                for line in one.epochs
                if line.get(metric) is not None
            ]
            for one in seeds.values()
            # One that was stopped from outside might yet have got there.
            if one.trial.state in ENDED_WELL
        ]
        if not trials:
            continue
        found = time_to_quality(trials, target)
        yield Finding(
            kind="quality",
            subject=metric,
            cells=(cell.id,),
            numbers={
                "target": target.value,
                "num_reached": found.num_reached,
                "median_epoch": found.median_epoch,
                "median_s": found.median_elapsed_s,
            },
            n=found.num_trials,
        )
