"""What a user's training raised, as it is recorded."""

import traceback
from pathlib import Path

from trainlab.errors import said_by

OURS = Path(__file__).parent
"""Frames in there are no part of the script."""
LONGEST_TRACE = 20_000


def raised_by(error: BaseException) -> dict[str, str]:
    """Kind, message, the line of the user's own and the traceback from there on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = next((i for i, f in enumerate(frames) if OURS not in Path(f.filename).parents), 0)
    trace = error.__traceback__
    for _ in range(own):
        trace = trace.tb_next if trace is not None else None
    text = "".join(traceback.format_exception(type(error), error, trace))
    place = frames[own] if frames else None
    return {
        "kind": type(error).__name__,
        "message": said_by(error),
        "line": f"{Path(place.filename).name}:{place.lineno}" if place is not None else "",
        "trace": text[-LONGEST_TRACE:],
    }
