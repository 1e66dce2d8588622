"""Several runs: two laid side by side, or runs of one study put together where that is allowed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainlab.analyse.confounds import (
    Confound,
    pooling_problems,
    run_confounds,
    trial_confounds,
)
from trainlab.analyse.cost.measurement import MODES
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.cost import floor_of, sample_us
from trainlab.analyse.findings.learning import compared_metrics
from trainlab.errors import RecordError
from trainlab.record.trial import TrialRecord
from trainlab.stats.cost_ratio import CostComparison, compare_cost, decide_cost
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Comparison, Verdict, compare_all


@dataclass(frozen=True)
class Beside:
    """One figure of one cell in both runs; `b` is the second run."""

    cell: str
    subject: str
    """A metric, or `train/sample_us`, `inference/sample_us`."""
    a: float
    b: float
    comparison: Comparison | CostComparison

    @property
    def is_cost(self) -> bool:
        """Whether it is a cost, whose change is a ratio, rather than a metric."""
        return isinstance(self.comparison, CostComparison)

    @property
    def verdict(self) -> Verdict:
        """Of the comparison."""
        return self.comparison.verdict

    @property
    def change(self) -> float:
        """How many times as much B is, of a cost; how much more, of a metric."""
        if isinstance(self.comparison, CostComparison):
            return self.comparison.ratio.value
        return self.b - self.a

    @property
    def interval(self) -> Interval | None:
        """Of the change."""
        if isinstance(self.comparison, CostComparison):
            return self.comparison.ratio.interval
        difference = self.comparison.difference
        return None if difference is None else difference.interval


@dataclass(frozen=True)
class SideBySide:
    """Two runs of the same workload: what is the same cell in both, compared."""

    learned: tuple[Beside, ...]
    costs: tuple[Beside, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    confounds: tuple[Confound, ...]
    """What differs between the cells, the machines and the software: the answer to "why"."""


def side_by_side(first: Evidence, second: Evidence) -> SideBySide:
    """RecordError where the runs have no cell in common or are of different workloads."""
    if first.study.workload != second.study.workload:
        raise RecordError(
            f"compare: {first.name} is about {first.study.workload}, {second.name} about "
            f"{second.study.workload}; compare runs of one workload"
        )
    pairs = _matched(first, second)
    ids_a, ids_b = ([cell.id for cell in one.cells] for one in (first, second))
    if not pairs:
        raise RecordError(
            f"compare: no cell in common: {', '.join(ids_a)} against {', '.join(ids_b)}"
        )
    machines = run_confounds(first.environment, second.environment)
    return SideBySide(
        learned=tuple(_learned(first, second, pairs)),
        costs=tuple(_costs(first, second, pairs)),
        only_a=tuple(cell for cell in ids_a if cell not in {a for _, a, _ in pairs}),
        only_b=tuple(cell for cell in ids_b if cell not in {b for _, _, b in pairs}),
        confounds=(*_cell_confounds(first, second, pairs), *machines),
    )


def pooled(runs: Sequence[Evidence]) -> Evidence:
    """Runs of one study with different seeds as one; RecordError says why they must stay apart."""
    first = runs[0]
    learned = {cell: dict(seeds) for cell, seeds in first.learned.items()}
    for other in runs[1:]:
        problems = list(pooling_problems(first.environment, other.environment))
        if other.study.workload != first.study.workload:
            problems.append(f"{first.study.workload} against {other.study.workload}")
        if other.study.all_cells != first.study.all_cells:
            problems.append("their cells or settings differ")
        else:
            same = [(cell.id, cell.id, cell.id) for cell in first.cells]
            problems += [str(one) for one in _cell_confounds(first, other, same)]
        for cell, seeds in other.learned.items():
            twice = sorted(learned.get(cell, {}).keys() & seeds.keys())
            if twice:
                problems.append(f"seed {twice[0]} of {cell} is in both")
                break
        if problems:
            raise RecordError(
                f"{first.name} and {other.name} must not be pooled: {'; '.join(problems)}; "
                "lay them side by side with `trainlab compare`"
            )
        for cell, seeds in other.learned.items():
            learned.setdefault(cell, {}).update(seeds)
    # Cost is not pooled: a machine's luck on one day is not that of another.
    more = (t for run in runs[1:] for t in run.trials if t.kind == "learn")
    return replace(
        first,
        trials=(*first.trials, *more),
        learned=learned,
        probed=tuple(probed for run in runs for probed in run.probed),
    )


def _place(cell_id: str) -> str:
    """A cell's id without its device: the same cell on another machine."""
    parts = [part for part in cell_id.split(",") if not part.startswith("device=")]
    return ",".join(parts) or "base"


def _matched(first: Evidence, second: Evidence) -> list[tuple[str, str, str]]:
    """Cells that are the same, with a name for both: by id, or where only their device is another."""
    ids_a, ids_b = ([cell.id for cell in one.cells] for one in (first, second))
    pairs = []
    for a in ids_a:
        others = [a] if a in ids_b else [b for b in ids_b if b not in ids_a]
        for b in others:
            if (place := _place(a)) == _place(b):
                name = b if a == place else a if b in (a, place) else place
                pairs.append((name, a, b))
    return pairs


def _cell_confounds(
    first: Evidence, second: Evidence, pairs: Sequence[tuple[str, str, str]]
) -> tuple[Confound, ...]:
    """Settings, what they became, and data: whatever differs between trials of the same cell."""
    found: dict[str, Confound] = {}
    for _, cell_a, cell_b in pairs:
        ended_a, ended_b = _ended(first, cell_a), _ended(second, cell_b)
        for kind in sorted(ended_a.keys() & ended_b.keys()):
            for one in trial_confounds(ended_a[kind], ended_b[kind], frozenset()):
                found.setdefault(str(one), one)
    return tuple(found.values())


def _ended(evidence: Evidence, cell: str) -> dict[str, TrialRecord]:
    """One trial of each kind that ended well."""
    learned = [one.trial for one in evidence.learned.get(cell, {}).values()]
    measured = [one.trial for one in evidence.measured if one.trial.cell == cell]
    return {trial.kind: trial for trial in (*learned, *measured) if trial.state == "done"}


def _learned(
    first: Evidence, second: Evidence, pairs: Sequence[tuple[str, str, str]]
) -> list[Beside]:
    found = []
    for metric in compared_metrics(first):
        known = [
            (name, first.values(a, metric), second.values(b, metric))
            for name, a, b in pairs
            if _any(first.learned.get(a)) and _any(second.learned.get(b))
        ]
        compared = compare_all([(a, b) for _, a, b in known], first.study.margins.get(metric))
        found += [
            Beside(name, metric, one.mean_a, one.mean_b, one)
            for (name, _, _), one in zip(known, compared, strict=True)
            if one.mean_a is not None and one.mean_b is not None
        ]
    return found


def _any(seeds: object) -> bool:
    return bool(seeds)


def _costs(
    first: Evidence, second: Evidence, pairs: Sequence[tuple[str, str, str]]
) -> list[Beside]:
    found = []
    for mode in MODES:
        floors = [floor for one in (first, second) if (floor := floor_of(one, mode)) is not None]
        known = [
            (name, a, b)
            for name, cell_a, cell_b in pairs
            if (a := first.measurement(cell_a, mode)) and (b := second.measurement(cell_b, mode))
        ]
        compared = decide_cost(
            [
                compare_cost(sample_us(a), sample_us(b), max(floors, default=0.0))
                for _, a, b in known
            ]
        )
        if not floors:  # without an A/A pair in either there is no telling noise from a difference
            compared = tuple(replace(one, verdict="cannot tell") for one in compared)
        found += [
            Beside(
                name, f"{mode}/sample_us", a.summary.sample_us.value, b.summary.sample_us.value, one
            )
            for (name, a, b), one in zip(known, compared, strict=True)
        ]
    return found
