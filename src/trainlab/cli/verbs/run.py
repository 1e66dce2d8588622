"""trainlab run: a workload, a built-in study or a study file; record everything and say what follows."""

from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.console import Console

from trainlab.cli.errors import exit_for_failures
from trainlab.cli.language import words_in
from trainlab.cli.options import (
    BudgetOption,
    DesignOption,
    DryRunOption,
    JobsOption,
    JsonOption,
    LangOption,
    OnOption,
    OutOption,
    QuietOption,
    ReportOption,
    SlurmOption,
    TrialTimeoutOption,
    YesOption,
    cost_parameters,
    given_fields,
    placed,
    print_json,
    setting_parameters,
    with_options,
)
from trainlab.cli.outcome import show_outcome
from trainlab.cli.output import output_for_programs
from trainlab.cli.plan import plan_json, print_plan
from trainlab.cli.question import Asked, question_of, requested_seeds, seconds_of, timeout_of
from trainlab.cli.verb_help import MEASURING, MORE_OUTPUT, MORE_WHAT, SETTINGS, WHAT
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.errors import SpecError
from trainlab.execute.jobs import jobs_of
from trainlab.lab import drive, planned
from trainlab.resolve import asks_each_device
from trainlab.spec import CostSpec, TrainSpec
from trainlab.spec.probe import probe_of


def _run(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|STUDY",
            help="A workload (see `trainlab workloads`), FILE.py:NAME, a study (see `trainlab studies`) "
            "or a study file (.toml).",
            rich_help_panel=WHAT,
        ),
    ],
    *,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="How many seeds: 1 to COUNT.", rich_help_panel=SETTINGS
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVELS",
            help="A factor and its levels, as lr=0.01,0.001; again for more. A list given to any "
            "setting does the same.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    design: DesignOption = None,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="SEEDS",
            help="The seeds themselves, as 1 or 1,2,3.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = None,
    until_decided: Annotated[
        bool | None,
        typer.Option(
            help="Add seeds until every comparison is decided; the error rate holds over all looks.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = None,
    max_seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="COUNT",
            help="The most seeds for --until-decided.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = None,
    out: OutOption = None,
    tensorboard: Annotated[
        bool | None,
        typer.Option(help="Write TensorBoard event files.", rich_help_panel=MORE_OUTPUT),
    ] = None,
    save_model: Annotated[
        bool | None,
        typer.Option(
            help="Keep the trained weights (checkpoint/model.pt).", rich_help_panel=MORE_OUTPUT
        ),
    ] = None,
    profile: Annotated[
        bool | None,
        typer.Option(
            help="Also measure what a step costs, untrained and trained.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROBE",
            help="Watch inside the network: LAYER:QUANTITY:REDUCER, as relu:grad_input:sq_sum; again "
            "for more. See `trainlab probes WORKLOAD`.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    budget: BudgetOption = None,
    trial_timeout: TrialTimeoutOption = None,
    on: OnOption = "local",
    slurm: SlurmOption = "",
    jobs: JobsOption = "auto",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    report: ReportOption = True,
    lang: LangOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    words = words_in(lang)
    budget_s = None if budget is None else seconds_of(budget)
    asked = question_of(
        what,
        given_fields(TrainSpec, settings),
        vary or (),
        design=design,
        seeds=requested_seeds(seed, seeds),
        until_decided=until_decided,
        max_seeds=max_seeds,
        tensorboard=tensorboard,
        save_model=save_model,
        probes=tuple(probe_of(text) for text in probe) if probe else None,
    )
    on = placed(on, slurm)
    asked = _with_cost(asked, profile, given_fields(CostSpec, settings))
    question, where = asked.question, asked.where
    if max_seeds is not None and not question.until_decided:
        raise SpecError(["--max-seeds: is for --until-decided; for a fixed number use --seeds"])
    printing = output_for_programs() if as_json or quiet else nullcontext()
    if dry_run:
        with printing, asked.naming_options():
            study = planned(question, where, out=out, on=on, jobs=jobs_of(jobs), many=yes)
        if as_json:
            print_json(plan_json(study))
        else:
            each_device = asks_each_device(question)
            print_plan(Console(quiet=quiet), study, words, each_device=each_device)
        return
    console = Console(stderr=True, quiet=quiet)
    with printing, asked.naming_options():
        outcome = drive(
            question,
            where,
            out=out,
            many=yes,
            budget_s=budget_s,
            trial_timeout_s=timeout_of(trial_timeout),
            on=on,
            jobs=jobs_of(jobs),
            overridden=asked.overridden,
            watcher=ConsoleWatcher(console, words),
        )
    # Who interrupts a run does not wait for its report.
    is_reported = report and not outcome.was_interrupted
    show_outcome(outcome.run, words, as_json=as_json, quiet=quiet, report=is_reported)
    exit_for_failures(outcome.complete_run().evidence(), lang)


def _with_cost(asked: Asked, profile: bool | None, given: dict[str, Any]) -> Asked:
    """The study's measurement of cost, overridden by flags; --profile adds one to a study without, and
    --no-profile leaves that of a study out."""
    cost = asked.question.cost
    if profile is False or (cost is None and not profile):
        if given:
            first = next(iter(given)).replace("_", "-")
            remedy = "add --profile"
            if first == "processes":
                remedy = "add --profile, or train with several processes by --data-parallel"
            raise SpecError([f"--{first}: is about measuring cost; {remedy}"])
        return asked.with_cost(None)
    own = {"weights": "both"} if cost is None else cost.model_dump(exclude_unset=True)
    return asked.checked_cost(own, given)


command = with_options(
    _run,
    setting_parameters(),
    (
        "trainlab run mnist-lab",
        "trainlab run mnist-cnn --epochs 1 --batch-size 64 --seed 1",
        "trainlab run fashion-mlp --lr 0.01,0.001 --optimizer adam,sgd --seeds 8",
    ),
    last=cost_parameters(basic=("processes",)),
)
