"""What an answer is made of: sentences that name their evidence, and points left open."""

from dataclasses import dataclass, field

from trainlab.analysis.finding import Finding


@dataclass(frozen=True)
class Sentence:
    """One sentence of an answer, with one number."""

    text: str
    section: str
    """The section of the report that has its evidence."""
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    """What it follows from; empty where that is the records themselves."""


@dataclass(frozen=True)
class OpenPoint:
    """What could not be told, and what would settle it."""

    text: str
    section: str
    command: str | None = None
    minutes: float | None = None
    """How long the command takes, from what the trials of this run took."""


@dataclass(frozen=True)
class Answer:
    """The answer to the question of a run, as a person would write it."""

    sentences: tuple[Sentence, ...]
    """The most important first."""
    reasons: tuple[Sentence, ...]
    """Why it is so, each checked against the records."""
    open_points: tuple[OpenPoint, ...]
