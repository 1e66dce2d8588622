"""What is found in made-up runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricate import Fabricated
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.finding import Finding
from trainlab.analysis.overview import findings
from trainlab.plan import Trial
from trainlab.spec import Study
from trainlab.words import Words

EN = Words("en")


def evidence(path: Path, study: Study, **told: Any) -> Evidence:
    """Of a run of the study; what is told overrides what the records say."""
    return gather(Fabricated(**told).write(path / "run", study))


def of_kind(kind: str, found: Evidence) -> list[Finding]:
    return [one for one in findings(found) if one.kind == kind]


def accuracy(level: Callable[[Trial], float], **others: float) -> dict[str, Any]:
    """Records of trials that end with this accuracy."""
    return {"final": lambda trial: {"test/accuracy": level(trial), **others}}


def ends(cell: str, gone: str, after: int = 0) -> dict[str, Any]:
    """Records in which the trials of a cell end so, from a seed on."""
    return {"state": lambda t: gone if t.cell == cell and t.seed > after else "done"}
