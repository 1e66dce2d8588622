"""Where the spread between seeds comes from: initial weights, data order or dropout."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from scipy import special

from trainlab.analyse.contrast import level_of
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.stats.means import Interval
from trainlab.words import Words

FACTOR = "seed_parts"
FEWEST = 3
"""Seeds without which a spread says nothing."""


@dataclass(frozen=True, kw_only=True)
class SeedSpread(Finding):
    """How far the seeds of a cell lie apart when they change one part of what is random, or all."""

    kind = "seed_spread"
    section = "learning"
    rank = 3

    part: str
    std: float
    share: float | None
    """Its variance over that of the cell in which seeds change everything; None for that cell."""

    def phrases(self, words: Words) -> dict[str, object]:
        def spread(value: float) -> str:
            return self.difference_text(words, value).lstrip("+")

        return super().phrases(words) | {
            "spread": spread(self.std),
            "within": self.interval_text(words, spread),
            "part_name": words.named("part", self.part),
        }

    def statement(self, words: Words) -> str:
        return self.fill(words, "seed_spread" if self.share is None else "seed_spread_part")

    @property
    def weight(self) -> float:
        return self.std

    @property
    def group(self) -> tuple[str, ...]:
        return self.kind, self.part


def spread_findings(evidence: Evidence, metric: str) -> Iterator[Finding]:
    """Nothing unless the study varies what seeds change."""
    if FACTOR not in evidence.factors:
        return
    values = {cell.id: evidence.finite_values(cell.id, metric) for cell in evidence.cells}
    stds = {
        cell: statistics.stdev(of_cell)
        for cell, of_cell in values.items()
        if len(of_cell) >= FEWEST
    }
    known = [(cell, str(level_of(cell, FACTOR))) for cell in evidence.cells if cell.id in stds]
    whole = {_rest(cell.id): stds[cell.id] for cell, part in known if part == "all"}
    for cell, part in known:
        std, n = stds[cell.id], len(values[cell.id])
        total = None if part == "all" else whole.get(_rest(cell.id))
        yield SeedSpread(
            subject=metric,
            factor=FACTOR,
            cells=(cell.id,),
            part=part,
            std=std,
            share=(std / total) ** 2 if total else None,
            interval=_interval(std, n),
            n=n,
        )


def _rest(cell_id: str) -> str:
    """A cell's id without what its seeds change."""
    parts = [part for part in cell_id.split(",") if not part.startswith(f"{FACTOR}=")]
    return ",".join(part for part in parts if part != "base")


def _interval(std: float, n: int) -> Interval:
    """95 %, of the standard deviation of normal noise."""
    ends = (special.chdtri(n - 1, tail) for tail in (0.025, 0.975))
    return Interval(*(std * math.sqrt((n - 1) / float(end)) for end in ends))
