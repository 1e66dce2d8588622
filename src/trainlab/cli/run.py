"""trainlab run: train a workload, once per seed, and record everything."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from trainlab.cli.settings import asked_of, setting_parameters, spec_parameters, with_options
from trainlab.errors import SpecError
from trainlab.spec import CostSpec, TrainSpec, checked


def _run(
    workload: Annotated[
        str, typer.Argument(help="A built-in workload (see `trainlab workloads`) or FILE.py:NAME.")
    ],
    *,
    seed: Annotated[
        str, typer.Option(metavar="SEEDS", help="One seed, or several as 1,2,3: one trial each.")
    ] = "1",
    out: Annotated[
        Path | None, typer.Option(help="The run folder. [dim]\\[runs/<name>-<time>][/dim]")
    ] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard event files.")] = True,
    save_model: Annotated[
        bool, typer.Option("--save-model", help="Keep the trained weights (checkpoint/model.pt).")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Also measure what a step costs, untrained and trained."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; print only the run folder.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
    ] = False,
    **settings: Any,
) -> None:
    asked, seeds = asked_of(TrainSpec, settings), _seeds(seed)
    cost = _cost(profile, asked_of(CostSpec, settings))
    console = Console(stderr=True, quiet=quiet)
    # Imported here, after the cheap checks: torch takes seconds.
    with console.status("starting torch"):
        from trainlab.cli.progress import DownloadProgress, FreshProgress, TrainingProgress
        from trainlab.cli.summary import print_summary, summary
        from trainlab.data.fetch import reporting_to
        from trainlab.execute.resolve import make_study
        from trainlab.execute.run import run_study, start_run
        from trainlab.execute.worker import Loader

    with ExitStack() as stack:
        stack.enter_context(_terminable())
        if as_json or quiet:  # what the user's own code prints must not get in between
            stack.enter_context(redirect_stdout(sys.stderr))
        stack.enter_context(reporting_to(stack.enter_context(DownloadProgress(console))))
        load = Loader()
        options = {"tensorboard": tensorboard, "save_model": save_model, "cost": cost}
        study = make_study(load, workload, asked, seeds, "settings", **options)
        folder = start_run(study, out)
        progress = stack.enter_context(TrainingProgress(console, len(seeds)))
        fresh = stack.enter_context(FreshProgress(console, folder))
        try:
            run_study(folder, [progress], load, fresh)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
    if as_json:
        sys.stdout.write(json.dumps(summary(folder), allow_nan=False) + "\n")
    elif quiet:
        sys.stdout.write(f"{folder.path}\n")
    else:
        print_summary(Console(), folder)
    if interrupted:
        raise KeyboardInterrupt
    if any(trial.state == "failed" for trial in folder.trials()):
        raise typer.Exit(1)


def _cost(profile: bool, asked: dict[str, Any]) -> CostSpec | None:
    if profile:
        return checked(CostSpec, {"weights": "both", **asked}, "settings")
    if asked:
        first = next(iter(asked)).replace("_", "-")
        raise SpecError([f"--{first}: is about measuring cost; add --profile"])
    return None


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(
            [f"--seed: got {text!r}, must be whole numbers, as in 1 or 1,2,3"]
        ) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """A polite kill, or a closed terminal, ends a run as Ctrl-C does: recorded as interrupted."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    known = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    # One that is ignored stays so: under nohup a run is meant to outlive its terminal.
    numbers = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


command = with_options(
    _run,
    [*setting_parameters(), *spec_parameters(CostSpec, "Measurement, with --profile")],
    "Examples: [bold]trainlab run mnist-cnn --epochs 1 --batch-size 64 --seed 1[/bold] · "
    "[bold]trainlab run fashion-mlp --optimizer sgd --lr 0.001 --data bundled[/bold]",
)
