"""What a verb may raise, and what the user then sees: one line and an exit code."""

import functools
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

import typer

from trainlab.cli.language import spoken_language
from trainlab.errors import TrainlabError

if TYPE_CHECKING:
    from trainlab.analysis.evidence import Evidence
    from trainlab.workloads.user_code import UserMistake

P = ParamSpec("P")

MOST_MISTAKES = 3
"""Of the user's code that are shown; the trials' records have them all."""


def tell(line: str, lang: str | None) -> None:
    """An error line, in the language asked for."""
    from trainlab.spec.base import plain

    if (spoken := spoken_language(lang)) != "en":
        from trainlab.words.error_lines import error_line

        line = error_line(line, spoken)
    sys.stderr.write(f"trainlab: {plain(line)}\n")


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command with its errors reported: the user's mistakes in a line each, ours with a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asked = kwargs.get("lang")
        lang = asked if isinstance(asked, str) else None
        try:
            command(*args, **kwargs)
        except TrainlabError as error:
            _tell_mistake(error, lang)
            for line in str(error).splitlines():
                tell(line, lang)
            _tell_hint(str(error), lang)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            tell("interrupted", lang)
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception as error:  # noqa: BLE001  the user's code, or a defect of ours: shown whole
            if (mistake := _tell_mistake(error, lang)) is not None:
                tell(str(mistake), lang)
                _tell_hint(mistake.message, lang)
                raise typer.Exit(2) from None
            traceback.print_exc()
            tell("this is a defect of trainlab; please report the above", lang)
            raise typer.Exit(1) from None

    return run


def _tell_mistake(error: BaseException, lang: str | None) -> "UserMistake | None":
    """Shows where in the user's code an error came from, if it did."""
    from trainlab.record.trial_record import OF_RULES
    from trainlab.workloads.user_code import mistake_in

    mistake = mistake_in(error)
    if mistake is not None and mistake.trace and mistake.kind not in OF_RULES:
        _show_trace(mistake.trace, lang)
    return mistake


def _show_trace(trace: str, lang: str | None) -> None:
    from trainlab.spec.base import plain

    tell("in your code, most recent call last:", lang)
    for line in trace.splitlines():
        sys.stderr.write(f"{plain(line)}\n")


def _tell_hint(message: str, lang: str | None) -> None:
    from trainlab.workloads.user_code import hint_for

    if (hint := hint_for(message)) is not None and hint not in message:
        tell(hint, lang)


def exit_for_failures(evidence: "Evidence", lang: str | None = None) -> None:
    """The same for every verb that runs trials: exit code 2 where the user's code failed, after what it
    raised; 1 where a trial failed otherwise."""
    failed = [trial.error for trial in evidence.trials if trial.state == "failed"]
    if not failed:
        return
    mistakes = {one.mistake: one for one in failed if one is not None and one.mistake}
    for mistake, error in list(mistakes.items())[:MOST_MISTAKES]:
        if error.own_traceback:
            _show_trace(error.own_traceback, lang)
        tell(mistake, lang)
        _tell_hint(error.message, lang)
    raise typer.Exit(2 if mistakes else 1)
