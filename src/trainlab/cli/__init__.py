"""The command line: the verbs in the order people use them; the only place that prints and exits.

Each verb's module is imported only when that verb is called, so that `trainlab --help` answers at
once. Exit codes: 0 done, 1 our defect or a trial that failed, 2 the user's mistake, 130 interrupted.
"""

import importlib
import sys
from collections.abc import Sequence

import typer

from trainlab import __version__
from trainlab.cli.errors import guarded
from trainlab.cli.usage import Verb, Verbs

VERBS = {
    "run": "Run a workload or a study and say what follows from it.",
    "profile": "Measure what a step costs, in fresh processes.",
    "studies": "List the built-in studies, or print one to edit.",
    "show": "Show what a run has shown, from its records.",
    "report": "Write a run's report: HTML, Markdown, PDF.",
    "check": "Say whether reports that were handed in are their runs'.",
    "compare": "Lay two runs side by side: say, two machines.",
    "reproduce": "Hold a run against the published figures.",
    "probes": "List what can be probed in a workload.",
    "board": "Show a run in TensorBoard.",
    "workloads": "List the built-in workloads and their defaults.",
    "data": "List, fetch and verify data sets.",
    "env": "Show what this machine has, as it would be recorded.",
}
"""Help texts; `verbs/<name>.py` offers its verb as `command`, a function or a group of functions."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application: the verb that is called with its options, the others only by name and help text."""
    app = typer.Typer(
        name="trainlab",
        cls=Verbs,
        help="A lab bench for deep-learning training.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in VERBS.items():
        if name != called:
            app.command(name, help=summary)(_not_called)
            continue
        command = importlib.import_module(f"trainlab.cli.verbs.{name}").command
        if isinstance(command, typer.Typer):
            app.add_typer(command, cls=Verbs, name=name, help=summary)
        else:
            epilog = getattr(command, "epilog", None)
            app.command(name, cls=Verb, help=summary, epilog=epilog)(guarded(command))
    return app


def main() -> None:
    """Entry point of the `trainlab` command."""
    try:
        build(sys.argv[1:])()
    except KeyboardInterrupt:
        sys.exit(130)


def _not_called() -> None:
    raise AssertionError("a verb that was not called has no body")


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"trainlab {__version__}\n")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False,
        "--version",
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    ),
) -> None:
    pass
