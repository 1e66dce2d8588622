"""trainlab board: TensorBoard on a run's event files, opened on its curves."""

import os
import sys
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.errors import RecordError
from trainlab.record.files import temporary_folder


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of run folders.")] = Path(
        "runs"
    ),
    host: Annotated[
        str, typer.Option(help="Address to listen on; loopback: this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 6006,
    lang: LangOption = None,
) -> None:
    """Serves until Ctrl-C; exit codes are TensorBoard's."""
    from trainlab.cli.board.named_runs import NamedRuns, runs_in

    words_in(lang)  # TensorBoard speaks English; errors are told in the language asked for
    if not run.is_dir():
        raise RecordError(f"{run}: no such folder; name a run folder, as in runs/mnist-cnn-…")
    if next(run.rglob("events.out.tfevents.*"), None) is None:
        raise RecordError(
            f"{run}: has no TensorBoard event files; was it run with --no-tensorboard?"
        )
    if not runs_in(run):
        raise typer.Exit(_serve(run, run, host, port))
    with temporary_folder("trainlab-board-") as home:
        named = NamedRuns(run, home)
        named.link()
        Thread(target=named.keep_linked, daemon=True).start()
        raise typer.Exit(_serve(run, named.home, host, port))


def _serve(run: Path, logdir: Path, host: str, port: int) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tensorboard import default, program

    from trainlab.cli.board.named_runs import runs_in
    from trainlab.cli.board.opening import opening_on, opening_query

    def server(application: Any, flags: Any) -> Any:
        opened = opening_on(application, lambda: opening_query(runs_in(run)))
        return program.WerkzeugServer(opened, flags)

    board = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    arguments = ["--logdir", str(logdir), "--host", host, "--port", str(port)]
    board.configure([sys.argv[0], *arguments])
    sys.stdout.flush()
    return int(board.main() or 0)
