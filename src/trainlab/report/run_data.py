"""RunData: one run as a report needs it: its evidence, and what follows from it."""

import math
from dataclasses import dataclass
from functools import cached_property

from trainlab.analyse.evidence import Evidence, Line
from trainlab.analyse.findings import findings
from trainlab.analyse.findings.finding import Finding, Section
from trainlab.analyse.findings.learning import compared_metrics
from trainlab.stats.means import mean_of

MOST_LINES = 10
"""Cells drawn in one chart of curves; more cannot be told apart."""
MOST_CELLS = 40
"""Rows of one chart by cell; the tables have them all."""


@dataclass(frozen=True)
class RunData:
    """What every section is written from."""

    evidence: Evidence

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the study shows, and at the end what it cannot tell."""
        return findings(self.evidence)

    def of_section(self, section: Section) -> list[Finding]:
        """The findings that stand in one section."""
        return [one for one in self.findings if one.section == section]

    @cached_property
    def drawn(self) -> tuple[str, ...]:
        """The cells whose curves are drawn, in the order asked: all that learned, or of many the
        reference and those that ended best and worst."""
        evidence = self.evidence
        known = [cell.id for cell in evidence.cells if cell.id in evidence.learned]
        metrics = compared_metrics(evidence)
        if len(known) <= MOST_LINES or not metrics:
            return tuple(known[:MOST_LINES])
        means = {cell: mean_of(list(evidence.values(cell, metrics[0]).values())) for cell in known}
        by_mean = sorted(known, key=lambda c: -math.inf if (m := means[c]) is None else m.value)
        half = (MOST_LINES - 1) // 2
        kept = {known[0], *by_mean[:half], *by_mean[-half:]}
        return tuple(cell for cell in known if cell in kept)

    @cached_property
    def steps(self) -> dict[str, dict[int, tuple[Line, ...]]]:
        """The curves' lines of kind `step`, by cell and seed, of the cells that are drawn."""
        return {
            cell: {
                seed: tuple(one.read_steps()) for seed, one in self.evidence.learned[cell].items()
            }
            for cell in self.drawn
        }
