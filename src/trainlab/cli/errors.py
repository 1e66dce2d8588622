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
    from trainlab.analyse.evidence import Evidence

P = ParamSpec("P")


def tell(line: str, lang: str | None) -> None:
    """An error line, in the language asked for."""
    from trainlab.spec.plain_text import plain

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
            for line in str(error).splitlines():
                tell(line, lang)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            tell("interrupted", lang)
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception:  # noqa: BLE001  a defect of ours: shown whole, with exit code 1
            traceback.print_exc()
            tell("this is a defect of trainlab; please report the above", lang)
            raise typer.Exit(1) from None

    return run


def exit_for_failures(evidence: "Evidence") -> None:
    """Exit code 1 where a trial failed, the same for every verb that runs trials."""
    if any(trial.state == "failed" for trial in evidence.trials):
        raise typer.Exit(1)
