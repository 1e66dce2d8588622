"""Records in files: JSON files of one record, and files of lines, read with care."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from trainlab.errors import RecordError
from trainlab.record.files import numbered_lines, read_json, write_json
from trainlab.record.migrate import migrated
from trainlab.record.schema import FORMAT, Record, first_problem

R = TypeVar("R", bound=Record)

CHANGED = "the file was changed by hand?"


@dataclass(frozen=True)
class RecordFile(Generic[R]):
    """One JSON file of a trial that holds one record."""

    path: Path
    kind: type[R]

    def write(self, record: R) -> None:
        """Writes it whole, or not at all."""
        write_json(self.path, record.model_dump(mode="json"))

    def read(self) -> R:
        """Reads it; RecordError where it is missing or not one of ours."""
        return read_record(self.path, self.kind)

    def exists(self) -> bool:
        """Whether it has been written."""
        return self.path.exists()


def read_record(path: Path, kind: type[R]) -> R:
    """A record of this or an older version; RecordError where it is missing or none of ours."""
    value = read_json(path)
    number = value.get("format")
    if not isinstance(number, int) or number < 1:
        got = "has no format number" if number is None else f"format: got {number!r}"
        raise RecordError(f"{path}: {got}, must have one from 1 to {FORMAT}; {CHANGED}")
    if number > FORMAT:
        raise RecordError(f"{path}: format {number}, this trainlab reads up to {FORMAT}; update it")
    try:
        return kind.model_validate(migrated(path.name, value))
    except ValidationError as error:
        raise RecordError(f"{path}: {first_problem(error)}; {CHANGED}") from None


def checked_lines(
    path: Path, kind: type[R], holding: str = ""
) -> Iterator[tuple[dict[str, Any], R]]:
    """The lines as they are and as records; none where there is no file."""
    for number, line in numbered_lines(path, holding) if path.exists() else ():
        try:
            yield line, kind.model_validate(line)
        except ValidationError as error:
            problem = first_problem(error)
            raise RecordError(f"{path}: line {number}: {problem}; {CHANGED}") from None
