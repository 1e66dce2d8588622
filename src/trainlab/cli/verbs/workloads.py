"""trainlab workloads: what can be run by name."""

from rich.console import Console
from rich.table import Table

from trainlab.workloads.catalogue import BUILTIN


def command() -> None:
    """List the built-in workloads."""
    table = Table()
    for column in ("workload", "what it is", "defaults"):
        table.add_column(column)
    for entry in BUILTIN.values():
        defaults = ", ".join(f"{name} {value}" for name, value in entry.defaults.items())
        table.add_row(entry.name, entry.summary, defaults)
    Console().print(table)
    Console().print("Your own: trainlab run FILE.py:NAME, where NAME is a trainlab.Workload.")
