"""Runs of a script that repeat others exactly: it does not use an argument, or not the seed, it seems."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.findings.finding import Finding
from trainlab.analysis.findings.scripts.watched import ScriptFinding
from trainlab.record.scripts.watched import WatchedRecord
from trainlab.spec import Cell
from trainlab.spec.cell import short_name
from trainlab.words import Words

MIN_UPDATES = 3
"""The first loss is the same whatever is varied."""

Losses = tuple[tuple[int, int, tuple[float | None, ...]], ...]
"""By seed: the updates, and every loss."""


@dataclass(frozen=True, kw_only=True)
class SameLosses(ScriptFinding):
    """Settings that differ in one argument, and were trained alike to the last bit."""

    kind = "script_same"
    rank = 1

    is_whole: bool
    """Whether all levels of the argument gave the same."""

    def statement(self, words: Words) -> str:
        key = "script_same" if self.is_whole else "script_same_levels"
        return self.fill(words, key, argument=short_name(self.subject))

    @property
    def weight(self) -> float:
        return len(self.cells)


@dataclass(frozen=True, kw_only=True)
class ScriptSeeds(ScriptFinding):
    """Seeds that the script does not heed."""

    kind = "script_seeds"
    rank = 1

    num_different: int
    """Of its runs, in each setting."""

    def statement(self, words: Words) -> str:
        return self.fill(words, "script_seeds" if self.num_different == 1 else "script_seeds_some")


def repeat_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of each argument that is varied, in the order asked; then of seeds."""
    yield from _same_losses(evidence)
    yield from _seeds(evidence)


def _same_losses(evidence: Evidence) -> Iterator[Finding]:
    losses = {cell.id: found for cell in evidence.cells if (found := _losses(evidence, cell))}
    for factor in evidence.factors:
        groups = [
            [cell for cell in group if cell.id in losses] for group in _beside(evidence, factor)
        ]
        groups = [group for group in groups if len(group) > 1]
        alike = [same for group in groups for same in _alike(group, losses)]
        is_whole = bool(groups) and [len(one) for one in alike] == [len(one) for one in groups]
        if is_whole:
            alike = [[cell for group in groups for cell in group]]
        for cells in alike:
            yield SameLosses(
                subject=factor,
                cells=tuple(cell.id for cell in cells),
                n=sum(len(losses[cell.id]) for cell in cells),
                num_cells=len(evidence.cells),
                is_whole=is_whole,
            )


def _seeds(evidence: Evidence) -> Iterator[Finding]:
    """Cells with runs that are the same, those with as many together."""
    by_number: dict[tuple[int, int], list[str]] = {}
    for cell in evidence.cells:
        if repeats := evidence.repeats.get(cell.id):
            num_runs = len(evidence.learned[cell.id])
            by_number.setdefault((num_runs, num_runs - len(repeats)), []).append(cell.id)
    for (num_runs, num_different), cells in by_number.items():
        yield ScriptSeeds(
            subject="seeds",
            cells=tuple(cells),
            n=num_runs,
            num_cells=len(evidence.cells),
            num_different=num_different,
        )


def _beside(evidence: Evidence, factor: str) -> list[list[Cell]]:
    """Cells that differ in this argument alone."""
    groups: dict[str, list[Cell]] = {}
    for cell in evidence.cells:
        rest = repr(sorted((name, cell.levels[name]) for name in cell.levels if name != factor))
        groups.setdefault(rest, []).append(cell)
    return list(groups.values())


def _alike(group: list[Cell], losses: dict[str, Losses]) -> list[list[Cell]]:
    """Those of a group that gave the same, two or more."""
    by_losses: dict[Losses, list[Cell]] = {}
    for cell in group:
        by_losses.setdefault(losses[cell.id], []).append(cell)
    return [cells for cells in by_losses.values() if len(cells) > 1]


def _losses(evidence: Evidence, cell: Cell) -> Losses | None:
    """None where the cell was not watched to the end, or too few losses are known."""
    runs: dict[int, WatchedRecord] = {
        seed: one.watched
        for seed, one in sorted(evidence.learned.get(cell.id, {}).items())
        if one.watched is not None and one.trial.state == "done"
    }
    if not runs or any(run.num_steps < MIN_UPDATES or None in run.losses for run in runs.values()):
        return None
    return tuple((seed, run.num_steps, tuple(run.losses)) for seed, run in runs.items())
