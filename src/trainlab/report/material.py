"""Material: everything a report is written from, read from the run folder once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.evidence import Evidence, gather
from trainlab.analyse.findings.all import findings
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.learning import subjects
from trainlab.record.folder import RunFolder
from trainlab.record.schema import StudyRecord
from trainlab.stats.means import mean_of

MOST_LINES = 10
"""Cells drawn in one chart of curves; more cannot be told apart."""
MOST_CELLS = 40
"""Rows of one chart by cell; the tables have them all."""

Curve = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Material:
    """One run, as a report needs it."""

    record: StudyRecord
    evidence: Evidence
    findings: tuple[Finding, ...]
    steps: Mapping[str, Mapping[int, Curve]]
    """The curves' lines of kind `step`, by cell and seed, of the cells that are drawn."""
    files: tuple[str, ...]
    """The run's own tables that exist, by name."""
    num_traces: int
    """Trials that left a trace of their operators."""
    has_tensorboard: bool

    @property
    def drawn(self) -> tuple[str, ...]:
        """The cells whose curves are drawn, in the order asked."""
        return drawn_cells(self.evidence)

    def measured(self, mode: str) -> list[Measurement]:
        """One measurement per cell, in the order asked; the second of an A/A pair is left out."""
        evidence = self.evidence
        found = (evidence.measurement(cell.id, mode) for cell in evidence.cells)
        return [one for one in found if one is not None]


def read_material(folder: RunFolder, evidence: Evidence | None = None) -> Material:
    """Reads a run, or what of it has not been read; RecordError where it is none of ours."""
    evidence = evidence or gather(folder)
    trials = [folder.trial(trial.id) for trial in evidence.trials]
    tables = (folder.results_csv, folder.results_parquet, folder.epochs_csv)
    return Material(
        record=folder.study(),
        evidence=evidence,
        findings=findings(evidence),
        steps={
            cell: {
                seed: tuple(
                    line for line in folder.trial(one.trial.id).curve() if line["kind"] == "step"
                )
                for seed, one in evidence.learned[cell].items()
            }
            for cell in drawn_cells(evidence)
        },
        files=tuple(path.name for path in tables if path.exists()),
        num_traces=sum(trial.trace_file.exists() for trial in trials),
        has_tensorboard=any(trial.tensorboard_folder.exists() for trial in trials),
    )


def drawn_cells(evidence: Evidence) -> tuple[str, ...]:
    """All that learned, or of many the reference and those that ended best and worst."""
    known = [cell.id for cell in evidence.cells if cell.id in evidence.learned]
    metrics = subjects(evidence)
    if len(known) <= MOST_LINES or not metrics:
        return tuple(known[:MOST_LINES])
    means = {cell: mean_of(list(evidence.values(cell, metrics[0]).values())) for cell in known}
    ranked = sorted(known, key=lambda cell: -math.inf if (m := means[cell]) is None else m.value)
    half = (MOST_LINES - 1) // 2
    kept = {known[0], *ranked[:half], *ranked[-half:]}
    return tuple(cell for cell in known if cell in kept)
