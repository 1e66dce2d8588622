"""Several runs: two compared side by side, or runs of one study pooled where that is allowed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from trainlab.analysis.confounds import Confound, pooling_problems, run_confounds, trial_confounds
from trainlab.analysis.cost import ratios_between
from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.measurement import MODES
from trainlab.analysis.metrics import compared_metrics, limits_of, resolution_of
from trainlab.errors import RecordError
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.facts import is_builtin
from trainlab.stats.cost_ratio import CostComparison
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Comparison, Verdict, compare_all


@dataclass(frozen=True)
class CellComparison:
    """One figure of one cell in both runs; `b` is the second run."""

    cell: str
    subject: str
    """A metric, or `train/sample_us`, `inference/sample_us`."""
    a: float
    b: float
    change: float
    """B over A for a cost, B minus A for a metric."""
    interval: Interval | None
    """The 95% interval of the change."""
    comparison: Comparison | CostComparison

    @property
    def is_cost(self) -> bool:
        """Whether it is a cost, whose change is a ratio; otherwise a metric."""
        return isinstance(self.comparison, CostComparison)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the comparison."""
        return self.comparison.verdict


@dataclass(frozen=True)
class SideBySide:
    """Two runs of the same workload: the cells that are in both, compared."""

    learned: tuple[CellComparison, ...]
    costs: tuple[CellComparison, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    confounds: tuple[Confound, ...]
    """What differs between the cells, the machines and the software: the answer to "why"."""


class CellPair(NamedTuple):
    """The same cell in both runs: a name for it, and its id in each."""

    name: str
    a: str
    b: str


def labels_of(runs: Sequence[Evidence], paths: Sequence[Path]) -> tuple[str, ...]:
    """A name for each run that no other has: its study's, else its folder's, else its path."""
    candidates = (
        [run.name for run in runs],
        [path.name for path in paths],
        [str(path) for path in paths],
    )
    return tuple(next((c for c in candidates if len(set(c)) == len(c)), candidates[-1]))


def side_by_side(first: Evidence, second: Evidence) -> SideBySide:
    """RecordError where the runs have no setting in common or are of different workloads."""
    if first.study.workload != second.study.workload:
        raise RecordError(
            f"compare: {first.name} is about {first.study.workload}, {second.name} about "
            f"{second.study.workload}; compare runs of one workload"
        )
    ids_a, ids_b = ([cell.id for cell in run.cells] for run in (first, second))
    pairs = _matched(ids_a, ids_b)
    if not pairs:
        raise RecordError(
            f"compare: no setting in common: {', '.join(ids_a)} against {', '.join(ids_b)}"
        )
    machines = run_confounds(first.environment, second.environment)
    return SideBySide(
        learned=tuple(_learned(first, second, pairs)),
        costs=tuple(_costs(first, second, pairs)),
        only_a=tuple(cell for cell in ids_a if cell not in {pair.a for pair in pairs}),
        only_b=tuple(cell for cell in ids_b if cell not in {pair.b for pair in pairs}),
        confounds=(*_cell_confounds(first, second, pairs), *machines),
    )


def pooled(runs: Sequence[Evidence], paths: Sequence[Path] = ()) -> Evidence:
    """Runs of one study with different seeds as one; RecordError says why they must stay apart.

    `paths` are their folders, for that line.
    """
    first = runs[0]
    names = labels_of(runs, paths) if paths else tuple(run.name for run in runs)
    learned = {cell: dict(seeds) for cell, seeds in first.learned.items()}
    for other, name in zip(runs[1:], names[1:], strict=True):
        git_matters = not _same_builtin_code(first, other)
        problems = list(pooling_problems(first.environment, other.environment, git_matters))
        if other.study.workload != first.study.workload:
            problems.append(f"{first.study.workload} against {other.study.workload}")
        if other.study.all_cells != first.study.all_cells:
            problems.append("their cells or settings differ")
        else:
            same = [CellPair(cell.id, cell.id, cell.id) for cell in first.cells]
            problems += [str(confound) for confound in _cell_confounds(first, other, same)]
        for cell, seeds in other.learned.items():
            if in_both := learned.get(cell, {}).keys() & seeds.keys():
                problems.append(f"seed {min(in_both)} of {cell} is in both")
                break
        if problems:
            raise RecordError(
                f"{names[0]} and {name} must not be pooled: {'; '.join(problems)}; "
                "lay them side by side with `trainlab compare`"
            )
        for cell, seeds in other.learned.items():
            learned.setdefault(cell, {}).update(seeds)
    # Cost is not pooled: a machine's luck on one day is not that of another.
    added = (trial for run in runs[1:] for trial in run.trials if trial.kind == "learn")
    return replace(
        first,
        trials=(*first.trials, *added),
        learned=learned,
        damaged=tuple(damage for run in runs for damage in run.damaged),
        probed=tuple(probed for run in runs for probed in run.probed),
    )


def _same_builtin_code(first: Evidence, second: Evidence) -> bool:
    """Whether both ran a workload that is part of trainlab, with the same code: the folder that they were
    started in, and its git commit, then have no part in it."""
    codes = {
        trial.resolved.get("code")
        for run in (first, second)
        for trial in run.trials
        if trial.state in ENDED_WELL
    }
    return is_builtin(first.study.workload) and len(codes) == 1 and None not in codes


def _without_device(cell_id: str) -> str:
    """A cell's id without its device: the same cell on another machine."""
    parts = [part for part in cell_id.split(",") if not part.startswith("device=")]
    return ",".join(parts) or "base"


def _matched(ids_a: Sequence[str], ids_b: Sequence[str]) -> list[CellPair]:
    """Cells that are the same: by id, or if they differ by device only."""
    pairs = []
    for a in ids_a:
        candidates = [a] if a in ids_b else [b for b in ids_b if b not in ids_a]
        for b in candidates:
            if (shared := _without_device(a)) == _without_device(b):
                name = b if a == shared else a if b in (a, shared) else shared
                pairs.append(CellPair(name, a, b))
    return pairs


def _cell_confounds(
    first: Evidence, second: Evidence, pairs: list[CellPair]
) -> tuple[Confound, ...]:
    """Settings, what they became, and data: whatever differs between trials of the same cell."""
    confounds: dict[str, Confound] = {}
    for _, cell_a, cell_b in pairs:
        done_a, done_b = _done_trials(first, cell_a), _done_trials(second, cell_b)
        for kind in sorted(done_a.keys() & done_b.keys()):
            for confound in trial_confounds(done_a[kind], done_b[kind], frozenset()):
                confounds.setdefault(str(confound), confound)
    return tuple(confounds.values())


def _done_trials(evidence: Evidence, cell: str) -> dict[str, TrialRecord]:
    """One trial of each kind that is done."""
    learned = [learned.trial for learned in evidence.learned.get(cell, {}).values()]
    measured = [m.trial for m in evidence.measured if m.trial.cell == cell]
    return {trial.kind: trial for trial in (*learned, *measured) if trial.state == "done"}


def _learned(first: Evidence, second: Evidence, pairs: list[CellPair]) -> Iterator[CellComparison]:
    in_both = [pair for pair in pairs if first.learned.get(pair.a) and second.learned.get(pair.b)]
    for metric in compared_metrics(first):
        # A cell of the one run and the same cell of the other are two cells here.
        values = {f"A/{pair.a}": first.values(pair.a, metric) for pair in in_both}
        values |= {f"B/{pair.b}": second.values(pair.b, metric) for pair in in_both}
        limits = limits_of(metric, (one for seeds in values.values() for one in seeds.values()))
        comparisons = compare_all(
            values,
            [(f"A/{pair.a}", f"B/{pair.b}") for pair in in_both],
            first.study.margins.get(metric),
            resolution=resolution_of(first, metric),
            most=limits.high - limits.low,
        )
        for pair, comparison in zip(in_both, comparisons, strict=True):
            a, b, interval = comparison.mean_a, comparison.mean_b, comparison.interval
            if a is not None and b is not None:
                yield CellComparison(pair.name, metric, a, b, b - a, interval, comparison)


def _costs(first: Evidence, second: Evidence, pairs: list[CellPair]) -> Iterator[CellComparison]:
    for mode in MODES:
        measured = [
            (pair.name, a, b)
            for pair in pairs
            if (a := first.measurement(pair.a, mode)) and (b := second.measurement(pair.b, mode))
        ]
        comparisons = ratios_between(first, second, mode, [(a, b) for _, a, b in measured])
        for (name, a, b), comparison in zip(measured, comparisons, strict=True):
            us_a, us_b = a.summary.sample_us.value, b.summary.sample_us.value
            is_equivalent = comparison.verdict == "equivalent"
            change = comparison.ratio.value
            interval = comparison.equivalence if is_equivalent else comparison.ratio.interval
            yield CellComparison(
                name, f"{mode}/sample_us", us_a, us_b, change, interval, comparison
            )
