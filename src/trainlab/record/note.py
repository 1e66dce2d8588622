"""Note: a remark about a trial or a measurement, as a code with values.

The words of each code are in `trainlab.words`, in every language.
"""

from trainlab.record.schema import Record

Value = str | int | float


class Note(Record):
    """What happened, and the values that go into its sentence."""

    code: str
    """The key of its sentence; `text` for a note that an older version wrote in English."""
    values: dict[str, Value] = {}


def note(code: str, **values: Value) -> Note:
    """A note with the values of its sentence."""
    return Note(code=code, values=values)
