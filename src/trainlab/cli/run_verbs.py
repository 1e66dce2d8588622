"""trainlab run, profile, resume, cancel: run a question, measure what a step costs, go on, stop."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from rich.console import Console

from trainlab.cli.application import exit_for_failures
from trainlab.cli.live_progress import ConsoleWatcher
from trainlab.cli.options import (
    Cost,
    Count,
    ForPrograms,
    ProfileCost,
    Seconds,
    Settings,
    Verb,
    option,
    word,
)
from trainlab.cli.output import output_for_programs, print_json, say
from trainlab.cli.parsing import Asked, question_of, spaces_of
from trainlab.errors import SpecError
from trainlab.execute.jobs import EXECUTORS, jobs_of, passes_output_on
from trainlab.execute.lease import ask_to_stop, holder_of, leased
from trainlab.execute.planned_run import mark_interrupted, unfinished_groups
from trainlab.execute.signals import EndAtOnce, signals_interrupt
from trainlab.extras import check_extra
from trainlab.lab import Run, drive, open_run, planned, resume_run
from trainlab.lab.driving import Outcome
from trainlab.record.files import make_folder
from trainlab.record.run_folder import RUNS
from trainlab.resolve import asks_each_device
from trainlab.spec import Study
from trainlab.spec.probe import probe_of
from trainlab.spec.study import cost_margins

if TYPE_CHECKING:
    from trainlab.cli.run_summary import Summary

PATIENCE_S = 30.0
"""How long a driver may take to close its records."""
POLL_S = 0.1
OF_QUESTION = {
    *("profile", "cost", "objective", "design"),
    *("until_decided", "max_seeds", "tensorboard", "save_model"),
}
"""Options of `run` that a question has by the same names."""


class Placed(ForPrograms):
    """Verbs that say where a new run goes."""

    out: Path | None = option("DIR", "output", shown="runs/NAME-TIME")
    """The run folder."""
    trial_timeout: Seconds | None = option("TIME", "what+")
    """A trial that takes longer, as 10m or 2h, fails; the others go on."""
    on: str = option(
        "WHERE", "what+", "local", meaning=f"Where trials run: {', '.join(EXECUTORS)}."
    )
    slurm: str | None = option("NAME=VALUE", "what+")
    """With --on slurm: options of sbatch, as partition=gpu,time=30,gpus=1."""

    def placed(self) -> dict[str, Any]:
        """What `drive` is told of it."""
        if self.slurm and self.on != "slurm":
            raise SpecError([f"--slurm: is for --on slurm, but --on is {self.on}; leave it out"])
        on = f"slurm:{self.slurm}" if self.slurm else self.on
        return {"out": self.out, "on": on, "trial_timeout_s": self.trial_timeout}


class Quietable(ForPrograms):
    """Verbs that can keep still, and end with an answer."""

    quiet: bool = option("", "output", False, names="--quiet -q")
    """No progress; print only the run folder."""

    def watcher(self) -> ConsoleWatcher:
        """Shows progress, unless it is not wanted."""
        return ConsoleWatcher(Console(stderr=True, quiet=self.quiet), self.words)

    def show_diagnosis(self, run: Run, *, is_cut_short: bool) -> None:
        """The answer of a diagnosis that has run; KeyboardInterrupt where it was cut short, after how to go
        on with it."""
        from trainlab.cli.run_summary import Summary

        summary = Summary(Console(stderr=is_cut_short), run.evidence(), self.words)
        if is_cut_short:
            summary.say_command("resume_it", "resume", run)
            raise KeyboardInterrupt
        if self.as_json:
            print_json({"run": str(run.path), **run.diagnosis.read().model_dump(mode="json")})
        elif self.quiet:
            sys.stdout.write(f"{run.path}\n")
        else:
            summary.print_diagnosis(run)


class Reported(Quietable):
    """Those that end with a summary and a report."""

    report: bool = option("", "output", True, shown="written")
    """At the end of a study, write report/report.html."""

    def show(self, outcome: Outcome) -> None:
        """Prints what a run came to, also to who interrupts that; a study gets its report, too, unless
        somebody does. Where a script's output was passed on, standard output is its alone."""
        run, record, summary = outcome.run, outcome.run.study(), None
        study = record.to_study(str(run.study_file))
        is_passed_on = passes_output_on(study, record.on, record.jobs, record.trial_timeout_s)
        try:
            with signals_interrupt():
                summary = self._answer(run, is_passed_on=is_passed_on)
                if not outcome.was_interrupted:
                    self._report(run, summary)
        except EndAtOnce:
            raise
        except KeyboardInterrupt:
            outcome = replace(outcome, was_interrupted=True)
            with signals_interrupt():
                summary = summary or self._answer(run, is_passed_on=is_passed_on)
        if outcome.was_interrupted:
            summary.say_command("resume_it", "resume", run)
        is_told = is_passed_on and not self.as_json
        exit_for_failures(outcome.complete_run().evidence(), self.words.lang, is_told=is_told)

    def _answer(self, run: Run, *, is_passed_on: bool) -> "Summary":
        """Prints it, all at once: an interrupt leaves no half of it."""
        from trainlab.cli.run_summary import Summary, evidence_json

        console = Console(stderr=is_passed_on, quiet=self.as_json or self.quiet)
        summary = Summary(console, run.evidence(), self.words)
        if self.as_json:
            print_json({"run": str(run.path), **evidence_json(summary.evidence)})
        elif not self.quiet:
            with console.capture() as printed:
                summary.print_all(run)
            console.file.write(printed.get())
        elif not is_passed_on:
            sys.stdout.write(f"{run.path}\n")
        return summary

    def _report(self, run: Run, summary: "Summary") -> None:
        """Whoever goes on with a run wants what was asked for when it began, unless they say so."""
        asked = (
            "report" in self.model_fields_set or "--no-report" not in run.study().command.split()
        )
        if self.report and asked and summary.evidence.study.cells:
            summary.write_report(run)
        elif self.report and asked and summary.evidence.learned:
            summary.say_command("report_with", "report", run)


class Studying(Placed, Reported):
    """What run and watch have in common."""

    objective: str | None = option("METRIC[:min|:max]", "what+")
    """The metric that the answer goes by, as accuracy, val/miou or reward:max; :min and :max say which way
    is better."""
    design: str | None = option("DESIGN", "what+")
    """grid, or one-at-a-time around the base."""
    budget: Seconds | None = option("TIME", "what+")
    """Stop after this long, as 10m or 2h; what runs then is interrupted."""
    jobs: str = option("COUNT", "what+", "auto")
    """Learn trials side by side, each in a process of its own; auto: one per vCPU, of one thread each, on
    the CPU and one on a GPU."""
    yes: bool = option("", "what+", False)
    """Allow a study of more than 500 trials."""
    page: bool = option("", "output", False)
    """Open the run in a browser, as `trainlab page` does; the page ends with the command."""
    dry_run: bool = option("", "output", False)
    """Show the plan and run nothing."""

    def placed(self) -> dict[str, Any]:
        """With the jobs and the budget."""
        return {**super().placed(), "jobs": jobs_of(self.jobs), "budget_s": self.budget}

    def __call__(self) -> None:
        with self._beside_page():
            self.answer()

    def answer(self) -> None:
        """Runs what is asked for, or shows its plan."""
        raise NotImplementedError

    @contextmanager
    def _beside_page(self) -> Iterator[None]:
        """With a page open on the runs, if that is asked for; on a terminal it stays until Ctrl-C."""
        if not self.page or self.dry_run:
            yield
            return
        check_extra("starlette", "the page", "page")
        folder = RUNS if self.out is None else self.out
        make_folder(folder)
        lang = f"--lang={self.words.lang}"
        command = [sys.executable, "-P", "-m", "trainlab", "page", str(folder), "--newest", lang]
        # Its address goes where ours goes that is no answer.
        served = subprocess.Popen(command, stdout=sys.stderr, start_new_session=True)
        try:
            yield
            if sys.stdin.isatty() and sys.stderr.isatty():
                say(Console(stderr=True), self.words("page_stays"))
                with suppress(KeyboardInterrupt):
                    served.wait()
        finally:
            served.terminate()
            served.wait()

    def show_plan(self, study: Study, *, each_device: bool) -> None:
        """What would be run."""
        from trainlab.cli.plan_text import plan_json, print_plan

        if self.as_json:
            print_json(plan_json(study))
        else:
            print_plan(Console(quiet=self.quiet), study, self.words, each_device=each_device)


class RunVerb(Studying):
    """A workload, a built-in study or a study file; records everything and says what follows.

    trainlab run mnist-lab
    trainlab run mnist-cnn --epochs 1 --batch-size 64 --seed 1
    trainlab run fashion-mlp --lr 0.01,0.001 --optimizer adam,sgd --seeds 8
    """

    what: str = word("WORKLOAD|STUDY", "what")
    """A workload (see `trainlab workloads`), FILE.py:NAME, a study (see `trainlab studies`) or a study file
    (.toml)."""
    settings: Settings = {}
    seeds: Count | None = option("COUNT", "settings")
    """How many seeds: 1 to COUNT."""
    vary: list[str] = option("NAME=LEVELS", "settings", [])
    """A factor and its levels, as lr=0.01,0.001; again for more. A list given to any setting does the
    same."""
    seed: str | None = option("SEEDS", "what+")
    """The seeds themselves, as 1 or 1,2,3."""
    until_decided: bool | None = option("", "what+")
    """Add seeds until every comparison is decided; the error rate holds over all looks."""
    max_seeds: Annotated[int | None, Field(ge=2)] = option("COUNT", "what+")
    """The most seeds for --until-decided."""
    tensorboard: bool | None = option("", "output+")
    """Write TensorBoard event files."""
    save_model: bool | None = option("", "output+")
    """Keep the trained weights (checkpoint/model.pt)."""
    profile: bool | None = option("", "measuring")
    """Also measure what a step costs; untrained and trained."""
    probe: list[str] = option("PROBE", "measuring", [])
    """Watch inside the network: LAYER:QUANTITY:REDUCER, as relu:grad_input:sq_sum; again for more. See
    `trainlab probes WORKLOAD`."""
    cost: Cost = {}

    def asked(self, vary: Sequence[str], **more: Any) -> Asked:
        """The question that the options ask; `vary` are factors with their levels."""
        return question_of(
            self.what,
            self.settings,
            vary,
            seeds=requested_seeds(self.seed, self.seeds),
            probes=tuple(map(probe_of, self.probe)) or None,
            **self.model_dump(include=OF_QUESTION),
            **more,
        )

    def answer(self) -> None:
        self.answered(self.asked(self.vary), self.placed())

    def answered(self, asked: Asked, placed: dict[str, Any]) -> None:
        """Runs the question, or shows its plan."""
        question, where = asked.question, asked.where
        if self.max_seeds is not None and not question.until_decided:
            raise SpecError(["--max-seeds: is for --until-decided; for a fixed number use --seeds"])
        with output_for_programs(self.as_json or self.quiet), asked.naming_options():
            if self.dry_run:
                few = {name: placed[name] for name in ("out", "on", "jobs")}
                study = planned(question, where, many=self.yes, **few)
            else:
                outcome = drive(
                    question,
                    where,
                    many=self.yes,
                    overridden=asked.overridden,
                    watcher=self.watcher(),
                    **placed,
                )
        if self.dry_run:
            self.show_plan(study, each_device=asks_each_device(question))
        else:
            self.show(outcome)


class SearchVerb(RunVerb):
    """The best setting, looked for, then confirmed with seeds that chose nothing.

    trainlab search fashion-mlp --vary lr=1e-5..1e-1 --vary optimizer=adam,sgd --vary hidden=32..512
    trainlab search my_model.py:workload --vary lr=1e-4..1e-1 --vary 'momentum=0.5..0.99 if optimizer=sgd'
    """

    vary: list[str] = option("NAME=SPACE", "settings", [])
    """What is searched: a range, as lr=1e-5..1e-1, or choices, as optimizer=adam,sgd; a range by its
    logarithm where its ends are 100 times apart or more (add log or linear to choose); `if NAME=VALUE`
    behind it says when; again for more."""
    settings: Settings = Field({}, alias="--of-workload")
    tries: Count | None = option(
        "COUNT", "settings", names="--settings", shown="60, or by --budget"
    )
    """How many settings are tried."""
    sampler: Literal["tpe", "random", "grid"] | None = option("tpe|random|grid", "settings")
    """What is tried next: by Optuna's TPE, at random, or all combinations of choices."""
    stop_early: bool | None = option("", "settings")
    """Stop a setting that is worse after an epoch than half of those before it were."""
    confirm: Count | None = option("COUNT", "settings")
    """So many of the best are trained again, with seeds that chose nothing."""
    draw: Annotated[int | None, Field(ge=0)] = option("NUMBER", "settings")
    """Another number tries other settings."""
    time_to: float | None = option("VALUE", "settings")
    """Look for the setting that is soonest this good, as 0.97; --profile measures what its steps cost."""

    def answer(self) -> None:
        given: dict[str, Any] = {"settings": self.tries, "budget_s": self.budget}
        given |= self.model_dump(include={"sampler", "stop_early", "confirm", "draw", "time_to"})
        search = {name: value for name, value in given.items() if value is not None}
        if self.vary:
            search["vary"] = spaces_of(self.vary)
        asked = self.asked((), search=search or None)
        if asked.question.search is None:
            raise SpecError(["--vary: got none, must say what is searched, as lr=1e-5..1e-1"])
        self.answered(asked, {**self.placed(), "budget_s": None})


def requested_seeds(seed: str | None, seeds: int | None) -> int | tuple[int, ...] | None:
    """The seeds of --seed or the number of --seeds; None where neither was given."""
    if seed is not None and seeds is not None:
        raise SpecError(["--seed and --seeds: give one of them"])
    if seed is None:
        return seeds
    numbers = [part.strip() for part in seed.split(",")]
    if not all(number.isdecimal() for number in numbers):
        rule = "must be whole numbers from 0, as in 1 or 1,2,3"
        raise SpecError([f"--seed: got {seed!r}, {rule}"])
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise SpecError([f"--seed: got {twice[0]} twice, seeds must differ"])
    return tuple(map(int, numbers))


class ProfileVerb(Placed):
    """What a step costs, measured in fresh processes.

    trainlab profile mnist-cnn --batch-size 64
    trainlab profile mnist-cnn --mode inference --batch-size 1,16
    """

    workload: str = word("WORKLOAD", "what")
    """A built-in workload (see `trainlab workloads`) or FILE.py:NAME."""
    cost: ProfileCost = {}
    settings: Settings = {}
    top: Count = option("COUNT", "measuring", 10)
    """How many operators to show."""
    sort: Literal["self", "total", "calls", "memory"] = option(
        "self|total|calls|memory", "measuring", "self"
    )
    """What ranks operators."""
    classic: bool = option("", "measuring", False)
    """Operators as PyTorch's own seven-column table."""

    def __call__(self) -> None:
        cost = {"weights": "untrained", **self.cost}
        asked = question_of(self.workload, self.settings, profile=True, cost=cost, learn=False)
        if asked.where != "settings":
            name = self.workload
            raise SpecError([f"{name}: is a study; run it with `trainlab run {name}`"])
        margins = cost_margins(asked.question.cost)
        question = asked.question.model_copy(update={"margins": margins})
        with output_for_programs(self.as_json), asked.naming_options():
            watcher = ConsoleWatcher(Console(stderr=True), self.words)
            outcome = drive(question, asked.where, watcher=watcher, **self.placed())
        self._show(outcome.complete_run())
        exit_for_failures(outcome.run.evidence(), self.words.lang)

    def _show(self, run: Run) -> None:
        from trainlab.analysis.operators import classic_table
        from trainlab.cli.run_summary import Summary, measurement_json

        measured = run.evidence().measured
        summary = Summary(Console(stderr=self.as_json), run.evidence(), self.words)
        if self.as_json:
            values = [measurement_json(one, self.sort, self.top) for one in measured]
            content = values[0] if len(values) == 1 else {"measurements": values}
            print_json({"run": str(run.path), **content})
            summary.print_remarks()
            return
        for one in measured:
            summary.print_measurement(one, sort=self.sort, top=0 if self.classic else self.top)
            if self.classic and one.operators is not None:
                sys.stdout.write(classic_table(one.operators, self.top) + "\n")
        summary.print_results()
        summary.say("run_folder", path=run.path)


class ResumeVerb(Reported):
    """Go on with a run; finished trials are not run again."""

    run: Path = word("RUN")
    """A run folder."""
    allow_changed: bool = option("", "", False)
    """Go on though the workload's file is not what it was."""
    trust: bool = option("", "", False)
    """Run the code that it names, though you have not started this run from here."""
    budget: Seconds | None = option("TIME")
    """Stop after this long, as 10m or 2h; what runs then is interrupted."""

    def __call__(self) -> None:
        with output_for_programs(self.as_json or self.quiet):
            outcome = resume_run(
                self.run,
                allow_changed=self.allow_changed,
                is_trusted=self.trust,
                budget_s=self.budget,
                watcher=self.watcher(),
            )
        if not outcome.run.is_diagnosis:
            self.show(outcome)
            return
        is_cut_short = outcome.was_interrupted or not outcome.run.diagnosis.exists()
        self.show_diagnosis(outcome.run, is_cut_short=is_cut_short)


class CancelVerb(Verb):
    """Stop a run, wherever it runs, as Ctrl-C would; trials that run are recorded as interrupted."""

    run: Path = word("RUN")
    """A run folder."""

    def __call__(self) -> None:
        folder, deadline_s = open_run(self.run), time.monotonic() + PATIENCE_S
        while (driver := holder_of(folder)) is not None and not driver.is_dead:
            ask_to_stop(folder)
            if time.monotonic() > deadline_s:
                break
            time.sleep(POLL_S)
        with leased(folder):  # refused where its driver is alive and does not stop
            mark_interrupted(folder)
        key = "cancelled" if unfinished_groups(folder) else "cancelled_nothing"
        say(Console(), self.words(key, path=self.run, number=len(folder.study().trials)))
