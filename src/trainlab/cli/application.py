"""The application of the command line, as typer has it."""

import importlib
import sys
from collections.abc import Mapping, Sequence

import typer

from trainlab import __version__
from trainlab.cli.errors import guarded
from trainlab.cli.usage import Verb, Verbs

ROOMS = {
    **dict.fromkeys(("resume", "status", "cancel"), "verbs.under_way"),
    **dict.fromkeys(("export", "init"), "verbs.files"),
    **dict.fromkeys(("watch", "diagnose"), "verbs.scripts"),
    **dict.fromkeys(("compare", "gate"), "verbs.comparing"),
}
"""Verbs about a run that is not finished, about scripts, those that write files to go on with, and those
that hold one run against another have rooms of their own."""


def application(arguments: Sequence[str], summary: str, verbs: Mapping[str, str]) -> typer.Typer:
    """All verbs, of which only the one that is called has its options."""
    app = typer.Typer(
        name="trainlab",
        cls=Verbs,
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, meaning in verbs.items():
        if name != called:
            app.command(name, help=meaning)(_not_called)
            continue
        command = importlib.import_module(module_of(name)).command
        if isinstance(command, typer.Typer):
            app.add_typer(command, cls=Verbs, name=name, help=meaning)
        else:
            epilog = getattr(command, "epilog", None)
            context = getattr(command, "context_settings", None)
            offered = app.command(
                name, cls=Verb, help=meaning, epilog=epilog, context_settings=context
            )
            offered(guarded(command))
    return app


def module_of(verb: str) -> str:
    """The module that offers a verb."""
    return f"trainlab.cli.{ROOMS.get(verb, 'verbs')}.{verb}"


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
