"""The command line: the verbs in the order people use them; the only place that prints and exits.

Each verb's module is imported only when that verb is called, so that `trainlab --help` answers at
once. Exit codes: 0 done, 1 our defect or a trial that failed, 2 the user's mistake, 130 interrupted.
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from trainlab import __version__
from trainlab.cli.errors import guarded


@dataclass(frozen=True)
class Verb:
    """A command: its module offers it as `command`, a function or a group of functions."""

    module: str
    help: str


VERBS = {
    "run": Verb(
        "trainlab.cli.verbs.run", "Run a workload or a study and say what follows from it."
    ),
    "profile": Verb("trainlab.cli.verbs.profile", "Measure what a step costs, in fresh processes."),
    "studies": Verb(
        "trainlab.cli.verbs.studies", "List the built-in studies, or print one to edit."
    ),
    "show": Verb("trainlab.cli.verbs.show", "Show what a run has shown, from its records."),
    "report": Verb("trainlab.cli.verbs.report", "Write a run's report: HTML, Markdown, PDF."),
    "compare": Verb("trainlab.cli.verbs.compare", "Lay two runs side by side: say, two machines."),
    "reproduce": Verb("trainlab.cli.verbs.reproduce", "Hold a run against the published figures."),
    "probes": Verb("trainlab.cli.verbs.probes", "List what can be probed in a workload."),
    "board": Verb("trainlab.cli.verbs.board", "Show a run in TensorBoard."),
    "workloads": Verb(
        "trainlab.cli.verbs.workloads", "List the built-in workloads and their defaults."
    ),
    "data": Verb("trainlab.cli.verbs.data", "List, fetch and verify data sets."),
    "env": Verb("trainlab.cli.verbs.env", "Show what this machine has, as it would be recorded."),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application, with the one verb that is called in full and the others by name only."""
    app = typer.Typer(
        name="trainlab",
        help="A lab bench for deep-learning training.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, verb in VERBS.items():
        if name != called:
            app.command(name, help=verb.help)(_unread)
            continue
        command = importlib.import_module(verb.module).command
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=verb.help)
        else:
            app.command(name, help=verb.help, epilog=getattr(command, "epilog", None))(
                guarded(command)
            )
    return app


def main() -> None:
    """Entry point of the `trainlab` command."""
    try:
        build(sys.argv[1:])()
    except KeyboardInterrupt:
        sys.exit(130)


def _unread() -> None:
    raise AssertionError("a verb that was not called has no body")


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"trainlab {__version__}\n")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_version, help="Print the version and exit."
    ),
) -> None:
    pass
