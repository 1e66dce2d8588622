"""RunData: one run as a report needs it: its evidence, and what follows from it."""

import math
from dataclasses import dataclass
from functools import cached_property

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Section
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.trial_records import Line
from trainlab.stats.means import mean_of

MOST_LINES = 10
"""Cells drawn in one chart of curves; more cannot be told apart."""
MOST_CELLS = 40
"""Rows of one chart by cell; the tables have them all."""


@dataclass(frozen=True)
class RunData:
    """What every section is written from."""

    evidence: Evidence

    findings: tuple[Finding, ...]
    """What the study shows, and at the end what it cannot tell."""

    def findings_in(self, section: Section) -> list[Finding]:
        """The findings that stand in one section."""
        return [finding for finding in self.findings if finding.section == section]

    def profiled(self, mode: str) -> list[Measurement]:
        """The measurements of a mode whose operators were recorded, one per cell."""
        return [m for m in self.evidence.measured_in(mode) if m.operators is not None]

    @cached_property
    def drawn_cells(self) -> tuple[str, ...]:
        """The cells whose curves are drawn, in the study's order: all that learned, or where these are
        too many, the first (the reference) and those with the best and worst final mean."""
        evidence = self.evidence
        cells = [cell.id for cell in evidence.cells if cell.id in evidence.learned]
        metrics = compared_metrics(evidence)
        if len(cells) <= MOST_LINES or not metrics:
            return tuple(cells[:MOST_LINES])

        def final_mean(cell: str) -> float:
            mean = mean_of(list(evidence.values(cell, metrics[0]).values()))
            return -math.inf if mean is None else mean.value

        by_mean = sorted(cells, key=final_mean)
        half = (MOST_LINES - 1) // 2
        drawn = {cells[0], *by_mean[:half], *by_mean[-half:]}
        return tuple(cell for cell in cells if cell in drawn)

    @cached_property
    def step_lines(self) -> dict[str, dict[int, tuple[Line, ...]]]:
        """The curves' lines of kind `step`, by cell and seed, of the cells that are drawn."""
        learned = self.evidence.learned
        return {
            cell: {seed: tuple(trial.read_steps()) for seed, trial in learned[cell].items()}
            for cell in self.drawn_cells
        }
