"""The error of a preflight as JSON, so that it can be raised where the study was asked for: with its lines,
and with where in the user's code it came from."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainlab import errors
from trainlab.errors import SpecError, TrainlabError, WorkloadError
from trainlab.workloads.user_code import ToldMistakeError, UserMistake, mistake_in


def told_error(error: BaseException) -> dict[str, Any] | None:
    """The error; None where it is neither ours nor a mistake in the user's code."""
    mistake = mistake_in(error)
    if isinstance(error, TrainlabError):
        kind, lines = type(error).__name__, [str(error)]
        if isinstance(error, SpecError):
            lines = list(error.problems)
    elif mistake is not None:
        kind, lines = WorkloadError.__name__, [str(mistake)]
    else:
        return None
    return {"error": kind, "lines": lines, "mistake": mistake and asdict(mistake)}


def raise_told(told: Mapping[str, Any]) -> None:
    """Raises the error that `told_error` told, if it is one."""
    if "error" not in told:
        return
    kind: type[TrainlabError] = getattr(errors, told["error"], TrainlabError)
    lines, mistake = told["lines"], told.get("mistake")
    error = SpecError(lines) if kind is SpecError else kind("\n".join(lines))
    raise error from (None if mistake is None else ToldMistakeError(UserMistake(**mistake)))
