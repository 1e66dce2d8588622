"""Several runs: two laid side by side, or runs of one study put together where that is allowed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainlab.analyse.confounds import Confound, pooling_problems, run_confounds
from trainlab.analyse.cost_findings import MODES, floor_of, sample_us
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.learn_findings import subjects
from trainlab.analyse.noise import CostComparison, compare_cost, decide_cost
from trainlab.analyse.verdict import Comparison, compare, decide
from trainlab.errors import RecordError


@dataclass(frozen=True)
class Beside:
    """One figure of one cell in both runs; `b` is the second run."""

    cell: str
    subject: str
    """A metric, or `train/sample_us`, `inference/sample_us`."""
    a: float
    b: float
    found: Comparison | CostComparison


@dataclass(frozen=True)
class SideBySide:
    """Two runs of the same workload: what is the same cell in both, compared."""

    learned: tuple[Beside, ...]
    costs: tuple[Beside, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    confounds: tuple[Confound, ...]
    """What differs between the machines and software: the answer to "why"."""


def side_by_side(first: Evidence, second: Evidence) -> SideBySide:
    """RecordError where the runs have no cell in common or are of different workloads."""
    if first.study.workload != second.study.workload:
        raise RecordError(
            f"compare: {first.name} is about {first.study.workload}, {second.name} about "
            f"{second.study.workload}; compare runs of one workload"
        )
    names_a, names_b = ([_place(cell.id) for cell in one.cells] for one in (first, second))
    shared = [name for name in names_a if name in names_b]
    if not shared:
        raise RecordError(
            f"compare: no cell in common: {', '.join(names_a)} against {', '.join(names_b)}"
        )
    cells_a, cells_b = ({_place(cell.id): cell.id for cell in one.cells} for one in (first, second))
    pairs = [(name, cells_a[name], cells_b[name]) for name in shared]
    return SideBySide(
        learned=tuple(_learned(first, second, pairs)),
        costs=tuple(_costs(first, second, pairs)),
        only_a=tuple(name for name in names_a if name not in names_b),
        only_b=tuple(name for name in names_b if name not in names_a),
        confounds=run_confounds(first.environment, second.environment),
    )


def pooled(runs: Sequence[Evidence]) -> Evidence:
    """Runs of one study with different seeds as one; RecordError says why they must stay apart."""
    first = runs[0]
    learned = {cell: dict(seeds) for cell, seeds in first.learned.items()}
    for other in runs[1:]:
        problems = list(pooling_problems(first.environment, other.environment))
        if other.study.all_cells != first.study.all_cells:
            problems.append("their cells or settings differ")
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
    trials = tuple(trial for run in runs for trial in run.trials)
    return replace(first, trials=trials, learned=learned)


def _place(cell_id: str) -> str:
    """A cell's id without its device: the same cell on another machine."""
    parts = [part for part in cell_id.split(",") if not part.startswith("device=")]
    return ",".join(parts) or "base"


def _learned(
    first: Evidence, second: Evidence, pairs: Sequence[tuple[str, str, str]]
) -> list[Beside]:
    found = []
    for metric in subjects(first):
        known = [
            (name, first.values(a, metric), second.values(b, metric))
            for name, a, b in pairs
            if _any(first.learned.get(a)) and _any(second.learned.get(b))
        ]
        compared = decide([compare(a, b, first.study.margins.get(metric)) for _, a, b in known])
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
        floor = max(floor_of(first, mode) or 0.0, floor_of(second, mode) or 0.0)
        known = [
            (name, a, b)
            for name, cell_a, cell_b in pairs
            if (a := first.measurement(cell_a, mode)) and (b := second.measurement(cell_b, mode))
        ]
        compared = decide_cost(
            [compare_cost(sample_us(a), sample_us(b), floor) for _, a, b in known]
        )
        found += [
            Beside(
                name, f"{mode}/sample_us", a.summary.sample_us.value, b.summary.sample_us.value, one
            )
            for (name, a, b), one in zip(known, compared, strict=True)
        ]
    return found
