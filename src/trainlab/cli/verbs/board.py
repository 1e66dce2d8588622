"""trainlab board: TensorBoard on a run's event files."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainlab.errors import RecordError


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of run folders.")] = Path(
        "runs"
    ),
    host: Annotated[
        str, typer.Option(help="Address to listen on; loopback: this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 6006,
) -> None:
    """Becomes TensorBoard: same process, so that Ctrl-C and exit codes are its own."""
    if not run.is_dir():
        raise RecordError(f"{run}: no such folder; name a run folder, as in runs/mnist-cnn-…")
    if next(run.rglob("events.out.tfevents.*"), None) is None:
        raise RecordError(
            f"{run}: has no TensorBoard event files; was it run with --no-tensorboard?"
        )
    arguments = ["--logdir", str(run), "--host", host, "--port", str(port)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "tensorboard.main", *arguments])  # noqa: S606
