"""The command line: the verbs by what they are for; the only place that prints and exits.

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
GROUPS = {
    "Run": {
        "run": ("run_verbs", "Run a workload or a study and say what follows from it."),
        "search": ("run_verbs", "Look for the best setting, and confirm what is found."),
        "watch": ("script_verbs", "Run a training script as it is, and say where its time goes."),
        "diagnose": ("script_verbs", "Say what limits a training script, and prove it."),
        "profile": ("run_verbs", "Measure what a step costs, in fresh processes."),
        "resume": ("run_verbs", "Go on with a run that was cut short."),
        "cancel": ("run_verbs", "Stop a run, wherever it runs; it can be resumed."),
        "init": ("machine_verbs", "Write a model and a study to start from."),
    },
    "Look at runs": {
        "show": ("look_verbs", "Show what a run has shown, from its records."),
        "page": ("page.verb", "Show runs in a browser, as they run and side by side."),
        "board": ("board_verb", "Show a run in TensorBoard."),
        "status": ("look_verbs", "Say how far a run is, from its folder alone."),
        "compare": ("compare_verbs", "Lay two runs side by side: say, two machines."),
    },
    "Hand in and hand on": {
        "report": ("hand_in_verbs", "Write a run's report: HTML, Markdown, PDF."),
        "export": ("hand_in_verbs", "Export a run: CSV, Parquet, LaTeX, MLflow, Perfetto."),
    },
    "Check": {
        "verify": ("hand_in_verbs", "Say whether a run's records are as they were written."),
        "gate": ("compare_verbs", "Say whether a run is slower than a baseline; for CI."),
        "reproduce": ("compare_verbs", "Hold a run against the published figures."),
        "check": ("hand_in_verbs", "Say whether reports that were handed in are their runs'."),
        "class": ("hand_in_verbs", "Lay the hand-ins of a class side by side, and check them."),
    },
    "What there is": {
        "studies": ("look_verbs", "List the built-in studies, or print one to edit."),
        "workloads": ("look_verbs", "List the built-in workloads and their defaults."),
        "probes": ("look_verbs", "List what can be probed in a workload."),
        "data": ("machine_verbs", "List and fetch data sets."),
        "env": ("machine_verbs", "Show what this machine has, as it would be recorded."),
    },
}
"""By what they are for: the module that has a verb, in this room unless it names another, and its help."""
HOMES = {name: home for verbs in GROUPS.values() for name, home in verbs.items()}
VERBS = {name: meaning for name, (_, meaning) in HOMES.items()}


def verb_called(name: str) -> Any:
    """Its class, or a table of verbs of its own; imports its module."""
    home, _ = HOMES[name]
    module = import_module(f"trainlab.{home}" if "." in home else f"trainlab.cli.{home}")
    return getattr(module, f"{name.title()}Verb")


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

    groups = {title: {name: VERBS[name] for name in verbs} for title, verbs in GROUPS.items()}
    sys.stdout.write(verbs_page("trainlab", SUMMARY, groups, spoken_language(lang)))
    return 0 if others else 2


def main() -> None:
    """Entry point of the `trainlab` command."""
    from trainlab.machine.processes import outlast_terminal

    faulthandler.enable(2)  # a crash of the user's code says where it was
    outlast_terminal()
    sys.exit(call(sys.argv[1:]))
