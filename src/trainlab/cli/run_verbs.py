"""trainlab run, profile, resume, cancel: run a question, measure what a step costs, go on, stop."""

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from rich.console import Console

from trainlab.cli.application import exit_for_failures
from trainlab.cli.live_progress import ConsoleWatcher
from trainlab.cli.options import Cost, Count, ProfileCost, Settings
from trainlab.cli.output import output_for_programs, print_json, say, words_in
from trainlab.cli.parsing import Asked, placed, question_of, requested_seeds, seconds_of
from trainlab.cli.plan_text import plan_json, print_plan
from trainlab.errors import SpecError
from trainlab.execute.jobs import jobs_of
from trainlab.lab import Run, drive, open_run, planned, resume_run
from trainlab.record.run_folder import RunFolder
from trainlab.resolve import asks_each_device
from trainlab.spec.probe import probe_of
from trainlab.spec.study import cost_margins
from trainlab.words import Words

PATIENCE_S = 30.0
"""How long a driver may take to close its records."""
POLL_S = 0.1
Sort = Literal["self", "total", "calls", "memory"]


def run(
    what: str,
    *,
    settings: Settings,
    seeds: Count | None = None,
    vary: list[str] | None = None,
    design: str | None = None,
    seed: str | None = None,
    until_decided: bool | None = None,
    max_seeds: Annotated[int | None, Field(ge=2)] = None,
    out: Path | None = None,
    tensorboard: bool | None = None,
    save_model: bool | None = None,
    profile: bool | None = None,
    probe: list[str] | None = None,
    budget: str | None = None,
    trial_timeout: str | None = None,
    on: str = "local",
    slurm: str | None = None,
    jobs: str = "auto",
    yes: bool = False,
    dry_run: bool = False,
    report: bool = True,
    lang: str | None = None,
    quiet: bool = False,
    as_json: bool = False,
    cost: Cost,
) -> None:
    """A workload, a built-in study or a study file; records everything and says what follows.

    what WORKLOAD|STUDY @what: A workload (see `trainlab workloads`), FILE.py:NAME, a study (see `trainlab
      studies`) or a study file (.toml).
    seeds COUNT @settings: How many seeds: 1 to COUNT.
    vary NAME=LEVELS @settings: A factor and its levels, as lr=0.01,0.001; again for more. A list given to
      any setting does the same.
    seed SEEDS @what+: The seeds themselves, as 1 or 1,2,3.
    until_decided @what+: Add seeds until every comparison is decided; the error rate holds over all looks.
    max_seeds COUNT @what+: The most seeds for --until-decided.
    tensorboard @output+: Write TensorBoard event files.
    save_model @output+: Keep the trained weights (checkpoint/model.pt).
    profile @measuring: Also measure what a step costs, untrained and trained.
    probe PROBE @measuring: Watch inside the network: LAYER:QUANTITY:REDUCER, as relu:grad_input:sq_sum;
      again for more. See `trainlab probes WORKLOAD`.

    trainlab run mnist-lab
    trainlab run mnist-cnn --epochs 1 --batch-size 64 --seed 1
    trainlab run fashion-mlp --lr 0.01,0.001 --optimizer adam,sgd --seeds 8
    """
    from trainlab.cli.run_summary import show_outcome

    words, budget_s = words_in(lang), seconds_of(budget)
    asked = question_of(
        what,
        settings,
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
    asked = _with_cost(asked, profile, cost)
    question, where = asked.question, asked.where
    if max_seeds is not None and not question.until_decided:
        raise SpecError(["--max-seeds: is for --until-decided; for a fixed number use --seeds"])
    for_programs = output_for_programs(as_json or quiet)
    if dry_run:
        with for_programs, asked.naming_options():
            study = planned(question, where, out=out, on=on, jobs=jobs_of(jobs), many=yes)
        if as_json:
            print_json(plan_json(study))
        else:
            each_device = asks_each_device(question)
            print_plan(Console(quiet=quiet), study, words, each_device=each_device)
        return
    with for_programs, asked.naming_options():
        outcome = drive(
            question,
            where,
            out=out,
            many=yes,
            budget_s=budget_s,
            trial_timeout_s=seconds_of(trial_timeout, "--trial-timeout"),
            on=on,
            jobs=jobs_of(jobs),
            overridden=asked.overridden,
            watcher=ConsoleWatcher(Console(stderr=True, quiet=quiet), words),
        )
    # Who interrupts a run does not wait for its report.
    is_reported = report and not outcome.was_interrupted
    show_outcome(outcome.run, words, as_json=as_json, quiet=quiet, report=is_reported)
    exit_for_failures(outcome.complete_run().evidence(), lang)


def _with_cost(asked: Asked, profile: bool | None, given: dict[str, str]) -> Asked:
    """The study's measurement of cost, overridden by flags; --profile adds one to a study without, and
    --no-profile leaves that of a study out."""
    cost = asked.question.cost
    if profile is False or (cost is None and not profile):
        if given:
            first, remedy = next(iter(given)).replace("_", "-"), "add --profile"
            if first == "processes":
                remedy = "add --profile, or train with several processes by --data-parallel"
            raise SpecError([f"--{first}: is about measuring cost; {remedy}"])
        return asked.with_cost(None)
    own = {"weights": "both"} if cost is None else cost.model_dump(exclude_unset=True)
    return asked.checked_cost(own, given)


def profile(
    workload: str,
    *,
    cost: ProfileCost,
    settings: Settings,
    out: Path | None = None,
    top: Count = 10,
    sort: Sort = "self",
    classic: bool = False,
    trial_timeout: str | None = None,
    on: str = "local",
    slurm: str | None = None,
    lang: str | None = None,
    as_json: bool = False,
) -> None:
    """What a step costs, measured in fresh processes.

    top COUNT @measuring: How many operators to show.
    sort self|total|calls|memory @measuring: What ranks operators.
    classic --classic @measuring: Operators as PyTorch's own seven-column table.

    trainlab profile mnist-cnn --batch-size 64
    trainlab profile mnist-cnn --mode inference --batch-size 1,16
    """
    on = placed(on, slurm)
    asked = question_of(workload, settings, learn=False)
    if asked.where != "settings":
        raise SpecError([f"{workload}: is a study; run it with `trainlab run {workload}`"])
    asked, words = asked.checked_cost({}, cost), words_in(lang)
    margins = cost_margins(asked.question.cost)
    with output_for_programs(as_json), asked.naming_options():
        outcome = drive(
            asked.question.model_copy(update={"margins": margins}),
            "settings",
            out=out,
            trial_timeout_s=seconds_of(trial_timeout, "--trial-timeout"),
            on=on,
            watcher=ConsoleWatcher(Console(stderr=True), words),
        )
    made = outcome.complete_run()
    _show_profile(made, words, top=top, sort=sort, classic=classic, as_json=as_json)
    exit_for_failures(made.evidence(), lang)


def _show_profile(
    run: Run, words: Words, *, top: int, sort: Sort, classic: bool, as_json: bool
) -> None:
    from trainlab.analysis.operators import classic_table
    from trainlab.analysis.overview import data_of
    from trainlab.cli import run_summary as summary

    evidence, console = run.evidence(), Console()
    if as_json:
        values = [summary.measurement_json(one, sort, top) for one in evidence.measured]
        content = values[0] if len(values) == 1 else {"measurements": values}
        print_json({"run": str(run.path), **content})
        summary.print_remarks(Console(stderr=True), evidence, words)
        return
    for one in evidence.measured:
        num_shown = 0 if classic else top
        summary.print_measurement(console, evidence.name, one, words, sort=sort, top=num_shown)
        if classic and one.operators is not None:
            sys.stdout.write(classic_table(one.operators, top) + "\n")
    data = data_of(evidence)
    summary.print_study(console, data, words)
    summary.print_data(console, evidence, words)
    summary.print_answer(console, data, words)
    say(console, words("run_folder", path=run.path))


def resume(
    run: Path,
    *,
    allow_changed: bool = False,
    budget: str | None = None,
    report: bool = True,
    lang: str | None = None,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Go on with a run; finished trials are not run again.

    allow_changed --allow-changed: Go on though the workload's file is not what it was.
    budget TIME: Stop after this long, as 10m or 2h; what runs then is interrupted.
    """
    from trainlab.cli.run_summary import show_outcome

    words = words_in(lang)
    with output_for_programs(as_json or quiet):
        outcome = resume_run(
            run,
            allow_changed=allow_changed,
            budget_s=seconds_of(budget),
            watcher=ConsoleWatcher(Console(stderr=True, quiet=quiet), words),
        )
    if outcome.is_diagnosis:
        from trainlab.cli.script_verbs import show_diagnosis

        is_cut_short = outcome.was_interrupted or not outcome.run.diagnosis.exists()
        show_diagnosis(outcome.run, words, as_json=as_json, quiet=quiet, is_cut_short=is_cut_short)
        return
    show_outcome(outcome.run, words, as_json=as_json, quiet=quiet, report=report)
    exit_for_failures(outcome.complete_run().evidence(), lang)


def cancel(
    run: Path,
    *,
    lang: str | None = None,
) -> None:
    """Stop a run, wherever it runs, as Ctrl-C would; trials that run are recorded as interrupted."""
    from trainlab.execute.lease import ask_to_stop, holder_of, leased
    from trainlab.execute.planned_run import mark_interrupted

    def is_driven(folder: RunFolder) -> bool:
        driver = holder_of(folder)
        return driver is not None and not driver.is_dead

    words, folder = words_in(lang), open_run(run)
    if is_driven(folder):
        ask_to_stop(folder)
    deadline_s = time.monotonic() + PATIENCE_S
    while is_driven(folder) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    with leased(folder):  # refused where its driver is alive and does not stop
        mark_interrupted(folder)
    say(Console(), words("cancelled", path=Path(run)))
