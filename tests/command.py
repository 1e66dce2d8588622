"""The command, called in the test's own process, where torch is loaded already."""

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

from trainlab.cli import call


@dataclass(frozen=True)
class Done:
    """What a verb printed, and its exit code."""

    stdout: str
    stderr: str
    code: object = 0


def called(*words: object) -> Done:
    """A command line, run."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            code: object = call([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    return Done(out.getvalue(), err.getvalue(), code)


Verb = Callable[..., Done]
