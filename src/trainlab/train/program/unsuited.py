"""Why a model's step cannot be made into a program."""

from trainlab.errors import said_by
from trainlab.record.schema import Value


class Unsuited(Exception):  # noqa: N818  no error: eager makes the updates instead
    """The step needs Python each time; `why` is a `not_…` sentence of `trainlab.words`."""

    def __init__(self, why: str, **values: Value) -> None:
        super().__init__(why)
        self.why, self.values = why, values


def reason_of(error: BaseException) -> str:
    """What an error says, in its first line."""
    text = said_by(error).strip() or type(error).__name__
    return text.splitlines()[0]
