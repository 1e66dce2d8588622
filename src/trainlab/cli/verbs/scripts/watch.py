"""trainlab watch: a training script as it is, measured; its own arguments can be varied."""

from collections.abc import Sequence
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
    ScriptArgument,
    ScriptArguments,
    SlurmOption,
    TrialTimeoutOption,
    YesOption,
    cost_parameters,
    given_fields,
    placed,
    print_json,
    with_options,
)
from trainlab.cli.outcome import show_outcome
from trainlab.cli.output import output_for_programs
from trainlab.cli.plan import plan_json, print_plan
from trainlab.cli.question import seconds_of, timeout_of, varied_of
from trainlab.cli.verb_help import MEASURING, MORE_OUTPUT, MORE_WHAT, WHAT
from trainlab.cli.verbs.scripts.shared_options import tell_shared_options
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.errors import SpecError
from trainlab.execute.jobs import jobs_of
from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study
from trainlab.spec import CostSpec, checked
from trainlab.spec.probe import probe_of


def _watch(
    script: ScriptArgument,
    arguments: ScriptArguments = None,
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVELS",
            help="An argument of the script and its levels, as batch-size=1,16,64; a variable of its "
            "environment as env.NAME=…; again for more.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="How many seeds: 1 to COUNT.", rich_help_panel=WHAT
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN",
            help="A metric in a line that the script prints: a regular expression with one group, as "
            r"'accuracy=Accuracy: .*\((\d+)%\)'; again for more.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    metric_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE:COLUMN",
            help="A metric in a CSV file that the script writes, as accuracy=log.csv:val_acc; again for "
            "more. Scalars that it writes for TensorBoard are taken without.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = None,
    seed_argument: Annotated[
        str | None,
        typer.Option(
            metavar="OPTION",
            help="The script's option that takes the seed; none: it has none. Not given: --seed, where its "
            "text has it.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = None,
    design: DesignOption = None,
    steps: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="COUNT",
            help="End the script after so many updates; 0: when it ends.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="COUNT",
            help="Threads of torch; not given: as the script and torch choose.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = None,
    nproc: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="COUNT",
            help="Start it by torchrun, in so many processes.",
            rich_help_panel=MORE_WHAT,
        ),
    ] = 1,
    learn: Annotated[
        bool, typer.Option(help="Run the whole script, once per seed.", rich_help_panel=WHAT)
    ] = True,
    profile: Annotated[
        bool,
        typer.Option(
            help="Also measure what a step costs, in fresh processes that take turns.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROBE",
            help="Watch inside the script's model: LAYER:QUANTITY:REDUCER, as *.weight:grad:norm; again "
            "for more.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    out: OutOption = None,
    tensorboard: Annotated[
        bool, typer.Option(help="Write TensorBoard event files.", rich_help_panel=MORE_OUTPUT)
    ] = True,
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
    **options: Any,
) -> None:
    words = words_in(lang)
    given = given_fields(CostSpec, options)
    if given and not profile:
        first = next(iter(given)).replace("_", "-")
        raise SpecError([f"--{first}: is about measuring cost; add --profile"])
    study = script_study(
        script,
        arguments or (),
        vary=varied_of(vary or ()),
        design=design or "grid",
        seeds=tuple(range(1, (seeds or 1) + 1)),
        metrics=metrics_of(metric or ()),
        metric_files=metrics_of(metric_file or (), "--metric-file", "accuracy=log.csv:val_acc"),
        seed_argument=seed_argument,
        threads=threads,
        max_steps=steps,
        processes=nproc,
        cost=checked(CostSpec, given, "--profile") if profile else None,
        learn=learn,
        probes=tuple(probe_of(text) for text in probe or ()),
        tensorboard=tensorboard,
        many=yes,
    )
    tell_shared_options(Console(stderr=True, quiet=quiet), script, arguments or (), words)
    if dry_run:
        if as_json:
            print_json(plan_json(study))
        else:
            print_plan(Console(quiet=quiet), study, words, each_device=False)
        return
    with output_for_programs() if as_json or quiet else nullcontext():
        outcome = drive(
            study,
            out=out,
            budget_s=None if budget is None else seconds_of(budget),
            trial_timeout_s=timeout_of(trial_timeout),
            on=placed(on, slurm),
            jobs=jobs_of(jobs),
            watcher=ConsoleWatcher(Console(stderr=True, quiet=quiet), words),
        )
    is_reported = report and not outcome.was_interrupted
    show_outcome(outcome.run, words, as_json=as_json, quiet=quiet, report=is_reported)
    exit_for_failures(outcome.complete_run().evidence(), lang)


def metrics_of(
    texts: Sequence[str],
    option: str = "--metric",
    example: str = "accuracy=Accuracy: ([0-9.]+)",
) -> dict[str, str]:
    """Metrics and where each is found, as they were typed."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not name.strip() or not place:
            is_pattern = option == "--metric"
            rule = "must be NAME=PATTERN" if is_pattern else "must be NAME=FILE:COLUMN"
            raise SpecError([f"{option}: got {text!r}, {rule}, as '{example}'"])
        found[name.strip()] = place
    return found


command = with_options(
    _watch,
    (),
    (
        "trainlab watch train.py --epochs 3",
        "trainlab watch train.py --vary batch-size=1,16,64 --seeds 3 --profile",
        r"trainlab watch train.py --metric 'accuracy=Accuracy: .*\((\d+)%\)'",
        "trainlab watch train.py --probe '*.weight:grad:norm'",
    ),
    last=cost_parameters(basic=("processes",)),
)
command.context_settings = {"ignore_unknown_options": True}
