"""Where the spread between seeds comes from: initial weights, data order or dropout."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scipy import special

from trainlab.analysis.contrast import level_of
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.stats.means import Interval, Ratio
from trainlab.words import Words
from trainlab.words.numbers import figure

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
    ratio: float | None
    """Its variance over that of the cell in which seeds change everything; None for that cell, and where
    either does not vary."""
    ratio_low: float | None
    ratio_high: float | None
    """The ends of the ratio's 95% interval."""

    def phrases(self, words: Words) -> dict[str, object]:
        def spread(value: float) -> str:
            return self.difference_text(words, value).lstrip("+")

        return super().phrases(words) | {
            "spread": spread(self.std),
            "within": self.interval_text(words, spread),
            "within_ratio": self._ratio_text(words),
            "part_name": words.named("part", self.part),
        }

    def statement(self, words: Words) -> str:
        if not self.std:
            return self.fill(words, "seed_spread_none")
        text = self.fill(words, "seed_spread" if self.part == "all" else "seed_spread_part")
        ratio = [] if self.ratio is None else [self.fill(words, "seed_spread_ratio")]
        return words.sentences(text, *ratio)

    def _ratio_text(self, words: Words) -> str:
        if self.ratio_low is None or self.ratio_high is None:
            return ""
        return words("within", low=figure(self.ratio_low), high=figure(self.ratio_high))

    @property
    def weight(self) -> float:
        return self.std


def spread_findings(evidence: Evidence, metric: str) -> Iterator[Finding]:
    """Nothing unless the study varies what seeds change."""
    if FACTOR not in evidence.factors:
        return
    values = {cell.id: evidence.finite_values(cell.id, metric) for cell in evidence.cells}
    known = [
        (cell, str(level_of(cell, FACTOR)))
        for cell in evidence.cells
        if len(values[cell.id]) >= FEWEST
    ]
    whole = {_rest(cell.id): values[cell.id] for cell, part in known if part == "all"}
    for cell, part in known:
        own = values[cell.id]
        ratio = None if part == "all" else _variance_ratio(own, whole.get(_rest(cell.id), []))
        std = _std(own)
        yield SeedSpread(
            subject=metric,
            factor=FACTOR,
            cells=(cell.id,),
            part=part,
            std=std,
            ratio=None if ratio is None else ratio.value,
            ratio_low=None if ratio is None or ratio.interval is None else ratio.interval.low,
            ratio_high=None if ratio is None or ratio.interval is None else ratio.interval.high,
            interval=_interval(std, len(own)) if std else None,
            n=len(own),
        )


def _rest(cell_id: str) -> str:
    """A cell's id without what its seeds change."""
    parts = [part for part in cell_id.split(",") if not part.startswith(f"{FACTOR}=")]
    return ",".join(part for part in parts if part != "base")


def _std(values: Sequence[float]) -> float:
    """Exactly zero where all values are equal."""
    return statistics.stdev(values) if len({*values}) > 1 else 0.0


def _interval(std: float, n: int) -> Interval:
    """95%, of the standard deviation of normal noise."""
    ends = (special.chdtri(n - 1, tail) for tail in (0.025, 0.975))
    return Interval(*(std * math.sqrt((n - 1) / float(end)) for end in ends))


def _variance_ratio(own: Sequence[float], whole: Sequence[float]) -> Ratio | None:
    """Of normal noise, with the 95% interval of the F distribution; None where either does not vary.

    Cells that share a part of their randomness vary together, and the interval is then wider than it
    need be.
    """
    if len(whole) < FEWEST or not _std(own) or not _std(whole):
        return None
    ratio = (_std(own) / _std(whole)) ** 2
    freedom = len(own) - 1, len(whole) - 1
    ends = (ratio / float(special.fdtri(*freedom, share)) for share in (0.975, 0.025))
    return Ratio(ratio, Interval(*ends), len(own))
