"""trainlab run: a workload, a built-in study or a study file; record everything and say what follows."""

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from trainlab.cli.options import asked_of, setting_parameters, spec_parameters, with_options
from trainlab.cli.progress.heartbeat import waiting_for
from trainlab.cli.question import question_of, seconds_of, seeds_asked
from trainlab.errors import SpecError
from trainlab.spec import CostSpec, Question, TrainSpec, checked
from trainlab.spec.probe import probe_of

if TYPE_CHECKING:
    from trainlab.analyse.evidence import Evidence
    from trainlab.record.folder import RunFolder


def _run(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|STUDY",
            help="A workload (see `trainlab workloads`), FILE.py:NAME, a study (see `trainlab studies`) "
            "or a study file (.toml).",
        ),
    ],
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVELS",
            help="A factor and its levels, as lr=0.01,0.001; again for more. A list given to any "
            "setting does the same.",
        ),
    ] = None,
    design: Annotated[
        str | None,
        typer.Option(metavar="DESIGN", help="grid, or one-at-a-time around the base."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="How many seeds: 1 to COUNT.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="The seeds themselves, as 1 or 1,2,3.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder. [dim]\\[runs/<name>-<time>][/dim]")
    ] = None,
    tensorboard: Annotated[bool | None, typer.Option(help="Write TensorBoard event files.")] = None,
    save_model: Annotated[
        bool | None,
        typer.Option("--save-model", help="Keep the trained weights (checkpoint/model.pt)."),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Also measure what a step costs, untrained and trained."),
    ] = False,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER:QUANTITY:REDUCER",
            help="Watch inside the network, as relu:grad_input:sq_sum; again for more. "
            "See `trainlab probes WORKLOAD`.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start no trial after this long, as 10m or 2h."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Allow a study of more than 500 trials.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and run nothing.")
    ] = False,
    report: Annotated[
        bool, typer.Option(help="At the end of a study, write report/report.html.")
    ] = True,
    lang: Annotated[
        str, typer.Option(metavar="en|zh", help="The language of the findings.")
    ] = "en",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; print only the run folder.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
    ] = False,
    **settings: Any,
) -> None:
    question, where = question_of(
        what,
        asked_of(TrainSpec, settings),
        vary or (),
        design=design,
        seeds=seeds_asked(seed, seeds),
        tensorboard=tensorboard,
        save_model=save_model,
        probes=tuple(probe_of(text) for text in probe) if probe else None,
    )
    question = _with_cost(question, profile, asked_of(CostSpec, settings))
    budget_s = None if budget is None else seconds_of(budget)
    console = Console(stderr=True, quiet=quiet)
    # Imported here, after the cheap checks: torch takes seconds.
    with waiting_for(console, "starting torch"):
        from trainlab.cli.perform import perform, resolved
        from trainlab.cli.plan_told import print_plan
        from trainlab.cli.summary import print_summary, summary
        from trainlab.execute.worker import Loader
        from trainlab.lab import finish
        from trainlab.words import check_language

    check_language(lang)
    # What the user's own code prints must not get in between.
    with redirect_stdout(sys.stderr) if as_json or quiet else nullcontext():
        load = Loader()
        study = resolved(console, load, question, where, many=yes)
        if study.cells or dry_run:
            print_plan(Console() if dry_run else console, study)
        if dry_run:
            return
        folder, was_interrupted = perform(console, load, study, out, budget_s)
    with waiting_for(console, "reading the records"):
        evidence = finish(folder)
    if as_json:
        sys.stdout.write(json.dumps(summary(folder, evidence), allow_nan=False) + "\n")
    elif quiet:
        sys.stdout.write(f"{folder.path}\n")
    else:
        print_summary(Console(), folder, evidence, lang)
    if report and study.cells and not (as_json or quiet):
        _write_report(folder, evidence, lang)
    if was_interrupted:
        raise KeyboardInterrupt
    if any(trial.state == "failed" for trial in evidence.trials):
        raise typer.Exit(1)


def _write_report(folder: "RunFolder", evidence: "Evidence", lang: str) -> None:
    from trainlab.errors import MissingExtraError
    from trainlab.report.writing import write_report

    console = Console()
    try:
        with waiting_for(Console(stderr=True), "writing the report"):
            (path,) = write_report(folder, ("html",), lang, evidence=evidence)
    except MissingExtraError as error:
        console.print(f"No report: {escape(str(error))}", soft_wrap=True, highlight=False)
    else:
        told = escape(str(path))
        console.print(f"Report: [bold]{told}[/bold]", soft_wrap=True, highlight=False)


def _with_cost(question: Question, profile: bool, asked: dict[str, Any]) -> Question:
    """The study's measurement of cost, overridden by flags; --profile adds one to a study without."""
    if question.cost is None and not profile:
        if asked:
            first = next(iter(asked)).replace("_", "-")
            raise SpecError([f"--{first}: is about measuring cost; add --profile"])
        return question
    known = {"weights": "both"} if question.cost is None else question.cost.model_dump()
    cost = checked(CostSpec, {**known, **asked}, "settings")
    return question.model_copy(update={"cost": cost})


command = with_options(
    _run,
    [
        *setting_parameters(),
        *spec_parameters(CostSpec, "Measurement, with --profile or a study that measures cost"),
    ],
    "Examples: [bold]trainlab run mnist-lab[/bold] · "
    "[bold]trainlab run mnist-cnn --epochs 1 --batch-size 64 --seed 1[/bold] · "
    "[bold]trainlab run fashion-mlp --vary lr=0.01,0.001 --vary optimizer=adam,sgd --seeds 8[/bold]",
)
