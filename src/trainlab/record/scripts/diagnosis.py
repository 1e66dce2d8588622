"""diagnosis.json: what limits a script, what was tried to show it, and what came of it."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainlab.record.schema import FileRecord, Record

LimitName = Literal[
    "data",
    "transfer",
    "optimizer",
    "evaluation",
    "logging",
    "between",
    "batch_size",
    "threads",
    "memory",
]
"""What may limit a script; where nothing of it does, the model's own arithmetic does."""
LimitVerdict = Literal["confirmed", "refuted", "cannot tell", "not tried"]


class TriedRow(Record):
    """One change made from outside, and what an update then took."""

    change: str
    """As `threads=1`."""
    is_remedy: bool
    """Whether it is something to do, rather than to prove."""
    verdict: LimitVerdict
    ratio: PositiveFloat | None = None
    """Time per update with the change over that without; per sample where the batch is another."""
    low: PositiveFloat | None = None
    """This and the next: its simultaneous 95% interval over all changes."""
    high: PositiveFloat | None = None
    processes: NonNegativeInt = 0
    """Fresh processes of each that took turns."""
    processes_needed: PositiveInt | None = None
    """To settle it, where it is open and that can be said."""
    growth_bytes: tuple[float, float] | None = None
    """Of memory: bytes per update without the change and with it; their ratio is the one above."""
    reason: str = ""
    """Why it could not be tried: a key among the words, or what the script raised."""

    @model_validator(mode="after")
    def _a_verdict_has_its_numbers(self) -> "TriedRow":
        is_timed = None not in (self.ratio, self.low, self.high)
        if self.verdict == "confirmed" and not is_timed and self.growth_bytes is None:
            raise ValueError("verdict: got confirmed, but ratio, low and high are not all there")
        return self


class LimitRow(Record):
    """One thing that may limit the script."""

    limit: LimitName
    share: NonNegativeFloat
    """Of the time of an update, everything included; of memory, 0."""
    potential: NonNegativeFloat
    """The share of the time that could be saved, guessed from the record: what is tried first."""
    verdict: LimitVerdict
    tried: list[TriedRow]
    line: int | None = None
    """Of the script, where it is about one."""
    text: str = ""
    """That line, or the container that grows."""
    number: float | None = None
    """The batch size, the threads, the workers or the bytes per update as they are."""

    @property
    def proofs(self) -> list[TriedRow]:
        """Changes that showed it."""
        return [one for one in self.tried if one.verdict == "confirmed" and not one.is_remedy]

    @model_validator(mode="after")
    def _what_is_confirmed_has_a_proof(self) -> "LimitRow":
        if self.verdict == "confirmed" and not self.proofs:
            raise ValueError("verdict: got confirmed, but nothing that was tried shows it")
        return self


class DiagnosisRecord(FileRecord):
    """From what was seen to what was shown."""

    script: str
    device: str
    num_updates: PositiveInt
    """That were watched."""
    update_ms: PositiveFloat
    """Wall time of one, everything included."""
    parts_ms: dict[str, NonNegativeFloat]
    """Of an update, by part; they add up to it."""
    cores: PositiveInt
    threads: PositiveInt
    batch_size: int | None
    min_gain: PositiveFloat
    """Saving less of the time does not count as a limit."""
    others_cores: NonNegativeFloat = 0.0
    """Cores that other programs kept busy while changes were measured."""
    limits: list[LimitRow]
    """The most important first."""
