"""What a user's training raised, as it is recorded."""

import traceback
from pathlib import Path
from types import TracebackType

from trainlab.workloads.user_code import FIELD, mistake_in

OURS = Path(__file__).parent
"""Frames in there are no part of the script."""
LONGEST_TRACE = 20_000


def raised_by(error: BaseException, script: Path | None = None) -> dict[str, str]:
    """Kind, message, the innermost line of the user's own and the traceback of her lines. `script`: its
    file, which is named where only libraries were at work."""
    setattr(error, FIELD, "script")
    mistake = mistake_in(error, "" if script is None else str(script))
    assert mistake is not None
    return {
        "kind": mistake.kind,
        "message": mistake.message,
        "line": mistake.line,
        "trace": mistake.trace[-LONGEST_TRACE:],
    }


def trace_of(error: BaseException) -> TracebackType | None:
    """What Python would show of it without us: from the script's first frame on."""
    trace = error.__traceback__
    for frame in traceback.extract_tb(trace):
        if trace is None or OURS not in Path(frame.filename).parents:
            break
        trace = trace.tb_next
    return trace
