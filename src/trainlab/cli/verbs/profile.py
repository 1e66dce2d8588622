"""trainlab profile: what a step costs, measured in fresh processes."""

import sys
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from trainlab.analysis.operators import Sort, classic_table
from trainlab.cli.errors import exit_for_failures
from trainlab.cli.language import words_in
from trainlab.cli.options import (
    JsonOption,
    LangOption,
    OnOption,
    OutOption,
    SlurmOption,
    TrialTimeoutOption,
    WorkloadArgument,
    cost_parameters,
    given_fields,
    placed,
    print_json,
    setting_parameters,
    with_options,
)
from trainlab.cli.output import output_for_programs
from trainlab.cli.question import question_of, timeout_of
from trainlab.cli.verb_help import MEASURING
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.errors import SpecError
from trainlab.lab import Run, drive
from trainlab.spec import CostSpec, TrainSpec
from trainlab.spec.study import cost_margins
from trainlab.words import Words


def _profile(
    workload: WorkloadArgument,
    *,
    out: OutOption = None,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="COUNT",
            help="How many operators to show.",
            rich_help_panel=MEASURING,
        ),
    ] = 10,
    sort: Annotated[
        Literal["self", "total", "calls", "memory"],
        typer.Option(
            metavar="self|total|calls|memory",
            help="What ranks operators.",
            rich_help_panel=MEASURING,
        ),
    ] = "self",
    classic: Annotated[
        bool,
        typer.Option(
            "--classic",
            help="Operators as PyTorch's own seven-column table.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    trial_timeout: TrialTimeoutOption = None,
    on: OnOption = "local",
    slurm: SlurmOption = "",
    lang: LangOption = None,
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    on, given = placed(on, slurm), given_fields(CostSpec, options)
    asked = question_of(workload, given_fields(TrainSpec, options), learn=False)
    if asked.where != "settings":
        raise SpecError([f"{workload}: is a study; run it with `trainlab run {workload}`"])
    asked = asked.checked_cost({}, given)
    cost = asked.question.cost
    assert cost is not None
    question = asked.question.model_copy(update={"margins": cost_margins(cost)})
    words = words_in(lang)
    with output_for_programs() if as_json else nullcontext(), asked.naming_options():
        watcher = ConsoleWatcher(Console(stderr=True), words)
        outcome = drive(
            question,
            "settings",
            out=out,
            trial_timeout_s=timeout_of(trial_timeout),
            on=on,
            watcher=watcher,
        )
    run = outcome.complete_run()
    _show(run, words, top=top, sort=sort, classic=classic, as_json=as_json)
    exit_for_failures(run.evidence(), lang)


def _show(run: Run, words: Words, *, top: int, sort: Sort, classic: bool, as_json: bool) -> None:
    from trainlab.analysis.overview import data_of
    from trainlab.cli.summary import (
        measurement_json,
        print_answer,
        print_data,
        print_measurement,
        print_remarks,
        print_study,
        say,
    )

    evidence = run.evidence()
    if as_json:
        values = [measurement_json(measurement, sort, top) for measurement in evidence.measured]
        content = values[0] if len(values) == 1 else {"measurements": values}
        print_json({"run": str(run.path), **content})
        print_remarks(Console(stderr=True), evidence, words)
        return
    console = Console()
    for measurement in evidence.measured:
        num_shown = 0 if classic else top
        print_measurement(console, evidence.name, measurement, words, sort=sort, top=num_shown)
        if classic and measurement.operators is not None:
            sys.stdout.write(classic_table(measurement.operators, top) + "\n")
    data = data_of(evidence)
    print_study(console, data, words)
    print_data(console, evidence, words)
    print_answer(console, data, words)
    say(console, words("run_folder", path=run.path))


command = with_options(
    _profile,
    [*cost_parameters(basic=("mode", "processes")), *setting_parameters()],
    (
        "trainlab profile mnist-cnn --batch-size 64",
        "trainlab profile mnist-cnn --mode inference --batch-size 1,16",
    ),
)
