"""The command line: the verbs in the order people use them; the only place that prints and exits.

A verb's module is imported only when that verb is called, and nothing at all for `trainlab --help`, so that
it answers at once. Exit codes: 0 done, 1 our defect or a trial that was lost, 2 the user's mistake or
an error of the user's code, 3 what a gate cannot tell, 130 interrupted; a watched script's own.
"""

import faulthandler
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from trainlab import __version__
from trainlab.language import split_language, spoken_language

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
    **dict.fromkeys(("env", "data", "init"), "machine_verbs"),
    "board": "board_verb",
}
"""The module that has a verb."""


def verb_called(name: str) -> Any:
    """Its class, or a table of verbs of its own; imports its module."""
    return getattr(import_module(f"trainlab.cli.{HOMES[name]}"), f"{name.title()}Verb")


def call(words: Sequence[str]) -> int:
    """Runs one command line; its exit code, which may also come as a SystemExit."""
    lang, others = split_language(words)
    if others == ["--version"]:
        sys.stdout.write(f"trainlab {__version__}\n")
        return 0
    if others not in ([], ["--help"]):
        from trainlab.cli.application import run_command

        return run_command(words, VERBS, verb_called)
    from trainlab.cli.help_pages import verbs_page

    sys.stdout.write(verbs_page("trainlab", SUMMARY, VERBS, spoken_language(lang)))
    return 0 if others else 2


def main() -> None:
    """Entry point of the `trainlab` command."""
    from trainlab.machine.processes import outlast_terminal

    faulthandler.enable(2)  # a crash of the user's code says where it was
    outlast_terminal()
    sys.exit(call(sys.argv[1:]))
