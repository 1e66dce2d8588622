"""trainlab env: this machine, as it would be recorded."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainlab.machine.environment import capture
from trainlab.record.environment import Environment


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the record itself.")] = False,
) -> None:
    """Print what would be recorded."""
    environment = capture(Path.cwd())
    if as_json:
        sys.stdout.write(environment.model_dump_json(indent=2) + "\n")
    else:
        Console().print(_table(environment))


def _table(found: Environment) -> Table:
    table = Table(show_header=False)
    usable = f"{found.num_vcpus_usable} usable of {found.num_vcpus}"
    rows = {
        "CPU": f"{found.cpu}, vCPUs: {usable}",
        "memory": f"{found.memory_gib} GiB",
        "GPU": "; ".join(f"{gpu.name}, {gpu.memory_gib} GiB" for gpu in found.gpus) or "none",
        "GPU driver": found.driver or "none",
        "CUDA, cuDNN": f"{found.cuda or 'none'}, {found.cudnn or 'none'}",
        "OS": f"{found.os}, kernel {found.kernel}",
        "Python": found.python,
        "packages": ", ".join(f"{name} {version}" for name, version in found.packages.items()),
        "torch threads": f"{found.torch_threads} (between operators: {found.torch_interop_threads})",
        "variables": ", ".join(f"{n}={v}" for n, v in found.variables.items()) or "none set",
        "git commit": _commit(found),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _commit(found: Environment) -> str:
    if found.git_commit is None:
        return "not a git checkout"
    return found.git_commit + (" with uncommitted changes" if found.git_dirty else "")
