"""The command line: the verbs in the order people use them; the only place that prints and exits.

A verb's module is imported only when that verb is called, and nothing at all for `trainlab --help`, so that
it answers at once. Exit codes: 0 done, 1 our defect or a trial that was lost, 2 the user's mistake or
an error of the user's code, 3 what a gate cannot tell, 130 interrupted.
"""

import faulthandler
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

SUMMARY = "A lab bench for deep-learning training."
VERBS = {
    "run": "Run a workload or a study and say what follows from it.",
    "watch": "Run a training script as it is, and say where its time goes.",
    "diagnose": "Say what limits a training script, and prove it.",
    "resume": "Go on with a run that was cut short.",
    "status": "Say how far a run is, from its folder alone.",
    "cancel": "Stop a run, wherever it runs; it can be resumed.",
    "profile": "Measure what a step costs, in fresh processes.",
    "init": "Write a model and a study to start from.",
    "studies": "List the built-in studies, or print one to edit.",
    "show": "Show what a run has shown, from its records.",
    "report": "Write a run's report: HTML, Markdown, PDF.",
    "export": "Export a run: CSV, Parquet, LaTeX, MLflow, Perfetto.",
    "check": "Say whether reports that were handed in are their runs'.",
    "verify": "Say whether a run's records are as they were written.",
    "compare": "Lay two runs side by side: say, two machines.",
    "gate": "Say whether a run is slower than a baseline; for CI.",
    "reproduce": "Hold a run against the published figures.",
    "probes": "List what can be probed in a workload.",
    "board": "Show a run in TensorBoard.",
    "workloads": "List the built-in workloads and their defaults.",
    "data": "List, fetch and verify data sets.",
    "env": "Show what this machine has, as it would be recorded.",
}
HOMES = {
    **dict.fromkeys(("run", "profile", "resume", "cancel"), "run_verbs"),
    **dict.fromkeys(("watch", "diagnose"), "script_verbs"),
    **dict.fromkeys(("show", "status", "studies", "workloads", "probes"), "look_verbs"),
    **dict.fromkeys(("compare", "gate", "reproduce"), "compare_verbs"),
    **dict.fromkeys(("report", "export", "check", "verify"), "hand_in_verbs"),
    **dict.fromkeys(("env", "data", "init", "board"), "machine_verbs"),
}
"""The module that has a verb, as a function of its name or a table of functions."""


def build(arguments: Sequence[str]) -> "typer.Typer":
    """The application: the verb that is called with its options, the others only by name and help text."""
    from trainlab.cli.application import application

    return application(arguments, SUMMARY, VERBS, HOMES)


def main() -> None:
    """Entry point of the `trainlab` command."""
    from trainlab.cli.output import Output
    from trainlab.errors import OutputError
    from trainlab.language import split_language
    from trainlab.machine.processes import open_closed_streams, outlast_terminal

    open_closed_streams()
    faulthandler.enable(2)  # a crash of the user's code says where it was
    outlast_terminal()
    lang, words = split_language(sys.argv[1:])
    sys.stdout = Output(sys.stdout)
    try:
        if words in ([], ["--help"]):
            sys.stdout.write(overview(lang))
            sys.exit(0 if words else 2)
        try:
            build(sys.argv[1:])()
        finally:
            sys.stdout.flush()
    except OutputError as error:
        sys.stderr.write(f"trainlab: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def overview(lang: str | None = None) -> str:
    """The help of `trainlab` itself, in the language asked for or that of the environment."""
    from trainlab.cli.help_pages import OF_A_VERB, Texts, help_page
    from trainlab.language import spoken_language

    texts = Texts(spoken_language(lang))
    groups = {
        texts("Verbs"): [(name, texts(meaning)) for name, meaning in VERBS.items()],
        texts("Options"): [
            ("--version", texts("Print the version and exit.")),
            ("--help", texts("Show this page and exit.")),
        ],
    }
    usage = texts.usage("trainlab VERB [OPTIONS]")
    return help_page(usage, texts(SUMMARY), groups, texts(OF_A_VERB, path="trainlab"))
