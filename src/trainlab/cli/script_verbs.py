"""trainlab watch and diagnose: a training script of the user's, run as it is."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt
from rich.console import Console

from trainlab.cli.options import Cost, Count, Seconds, option, word
from trainlab.cli.output import output_for_programs, say
from trainlab.cli.parsing import spaces_of, varied_of
from trainlab.cli.run_verbs import Quietable, Studying
from trainlab.errors import SpecError
from trainlab.execute.jobs import passes_output_on
from trainlab.lab.driving import drive
from trainlab.lab.script_study import (
    BUDGET_S,
    STEPS,
    diagnose,
    found_script,
    script_study,
    searched,
)
from trainlab.resolve import CONFIRMED_SEEDS
from trainlab.spec import CostSpec, checked
from trainlab.spec.base import field_problems
from trainlab.spec.probe import probe_of
from trainlab.spec.script import DiagnosisSpec, ScriptSpec, options_in
from trainlab.spec.search import SearchAsked

AS_PATTERN = "NAME=PATTERN, as 'accuracy=Accuracy: ([0-9.]+)'"
DEFAULTS = DiagnosisSpec()
OF_STUDY = {"objective", "seed_argument", "threads", "workdir", "learn", "tensorboard"}
"""Options of `watch` that `script_study` has by the same names."""
AS_COLUMN = "NAME=FILE:COLUMN, as 'accuracy=log.csv:val_acc'"


class OfScript(Quietable):
    """Verbs about a training script."""

    passes_on = True

    script: Path = word("SCRIPT.py", "what")
    """A training script, or -m and a module."""
    arguments: list[str] = word("ARGUMENTS", "what", [])
    """Its own arguments, as you would give them; after -- also those called like ours."""

    def tell_shared_options(self) -> None:
        """Says which options trainlab has taken that the script has, too: it was not given them."""
        path, _, source = found_script(self.script, self.arguments)
        known, console = options_in(source), Console(stderr=True, quiet=self.quiet)
        for one in self.options():
            given = getattr(self, one.owner) if one.owner else self.model_fields_set
            if one.field in given and one.names and one.names[0] in known:
                say(console, self.words("shared_option", option=one.names[0], script=path.name))


class WatchVerb(OfScript, Studying):
    r"""A training script as it is, measured; its own arguments can be varied.

    trainlab watch train.py --epochs 3
    trainlab watch train.py --vary batch-size=1,16,64 --seeds 3 --profile
    trainlab watch train.py --metric 'accuracy=Accuracy: .*\((\d+)%\)'
    trainlab watch train.py --probe '*.weight:grad:norm'
    """

    vary: list[str] = option("NAME=LEVELS", "what", [])
    """An argument of the script and its levels, as batch-size=1,16,64; a variable of its environment as
    env.NAME=…; again for more."""
    seeds: Count | None = option("COUNT", "what")
    """How many seeds: 1 to COUNT; not given: each setting runs once, without one of ours."""
    search: list[str] = option("NAME=SPACE", "what", [])
    """Look for the best value of an argument, as lr=1e-5..1e-1 or optimizer=adam,sgd (see `trainlab
    search`); again for more. Needs --objective; scored by what the script itself reports."""
    tries: Count | None = option("COUNT", "what+", names="--settings", shown="60")
    """With --search: how many settings are tried."""
    confirm: Count | None = option("COUNT", "what+", shown="3")
    """With --search: so many of the best run again, with seeds that chose nothing."""
    metric: list[str] = option("NAME=PATTERN", "what", [])
    r"""A metric in a line that the script prints: a regular expression with one group, as
    'accuracy=Accuracy: .*\((\d+)%\)'; again for more."""
    metric_file: list[str] = option("NAME=FILE:COLUMN", "what+", [])
    """A metric in a CSV file that the script writes, as accuracy=log.csv:val_acc; again for more. What
    it gives to TensorBoard, W&B, MLflow, Trackio or Accelerate is taken without."""
    seed_argument: str | None = option("OPTION", "what+")
    """The script's option that takes the seed; none: it has none. Not given: --seed, where its text has
    it."""
    workdir: Path | None = option("FOLDER", "what+")
    """The folder that all runs have in common, as it is, for a script that only reads; not given: a single
    run is in the current folder, and each of several in a copy of it."""
    steps: NonNegativeInt = option("COUNT", "what+", 0)
    """End the script after so many updates; 0: when it ends."""
    threads: Count | None = option("COUNT", "what+")
    """Threads of torch; not given: as the script and torch choose."""
    nproc: Count = option("COUNT", "what+", 1)
    """Start it by torchrun, in so many processes."""
    learn: bool = option("", "what", True)
    """Run the whole script, once per seed."""
    profile: bool | None = option("", "measuring")
    """Also measure what a step costs, in fresh processes that take turns."""
    probe: list[str] = option("PROBE", "measuring", [])
    """Watch inside the script's model: LAYER:QUANTITY:REDUCER, as *.weight:grad:norm; again for more."""
    tensorboard: bool = option("", "output+", True)
    """Write TensorBoard event files."""
    cost: Cost = {}

    def answer(self) -> None:
        if self.cost and not self.profile:
            first = next(iter(self.cost)).replace("_", "-")
            raise SpecError([f"--{first}: is about measuring cost; add --profile"])
        if self.seed_argument and self.seeds is None:
            raise SpecError(["--seed-argument: is about seeds; add --seeds"])
        seeds = CONFIRMED_SEEDS if self.search and self.seeds is None else self.seeds
        study = script_study(
            self.script,
            self.arguments,
            vary=varied_of(self.vary, as_written=True),
            design=self.design or "grid",
            seeds=None if seeds is None else tuple(range(1, seeds + 1)),
            metrics=_metrics(self.metric, "--metric", AS_PATTERN),
            metric_files=_metrics(self.metric_file, "--metric-file", AS_COLUMN),
            max_steps=self.steps,
            processes=self.nproc,
            cost=checked(CostSpec, self.cost, "--profile") if self.profile else None,
            probes=tuple(map(probe_of, self.probe)),
            many=self.yes,
            **self.model_dump(include=OF_STUDY),
        )
        if self.search:
            given = {"settings": self.tries, "budget_s": self.budget, "confirm": self.confirm}
            given = {name: value for name, value in given.items() if value is not None}
            asked = checked(SearchAsked, {**given, "vary": spaces_of(self.search)}, "--search")
            study = searched(study, asked, found_script(self.script, self.arguments)[2])
        self.tell_shared_options()
        if self.dry_run:
            self.show_plan(study, each_device=False)
            return
        placed = self.placed()
        is_passed_on = passes_output_on(study, self.on, placed["jobs"], self.trial_timeout)
        with output_for_programs(self.as_json or (self.quiet and not is_passed_on)):
            outcome = drive(study, watcher=self.watcher(), **placed)
        self.show(outcome)


def _metrics(texts: Sequence[str], option: str, rule: str) -> dict[str, str]:
    """Metrics and where each is found, as they were typed; what is wrong with one names its option."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, place = text.partition("=")
        if not name.strip() or not place:
            raise SpecError([f"{option}: got {text!r}, must be {rule}"])
        found[name.strip()] = place
    field = f"{option[2:].replace('-', '_')}s"
    problems = field_problems(ScriptSpec, {field: found})
    if wrong := [one for one in problems if one.startswith(f"{field}.")]:
        raise SpecError(one.replace(f"{field}.", f"{option} ", 1) for one in wrong)
    return found


class DiagnoseVerb(OfScript):
    """What limits a training script, and the proof.

    trainlab diagnose train.py --epochs 3
    trainlab diagnose train.py --try data --try threads=1
    """

    tries: list[str] = option("NAME", "measuring", [], names="--try")
    """Try only this: a limit, as data, or a change, as threads=1, same_batch or without=42; again for
    more."""
    workdir: Path | None = option("FOLDER", "what+")
    """The folder that all runs have in common, as it is, for a script that only reads; not given: each runs
    in a copy of the current one."""
    most: Count = option("COUNT", "measuring", DEFAULTS.most)
    """Possible limits to try."""
    steps: Annotated[int, Field(ge=30)] = option("COUNT", "measuring", STEPS)
    """Updates to watch, or 20 s if that is sooner."""
    processes: Annotated[int, Field(ge=2)] = option("COUNT", "measuring", DEFAULTS.processes)
    """Fresh processes of the script with each change, at most: more where a ratio stays open."""
    budget: Seconds = option("TIME", "measuring", f"{BUDGET_S:g}s", shown="2m")
    """End after this long, as 5m, with what is decided by then."""
    out: Path | None = option("DIR", "output", shown="runs/NAME-TIME")
    """The run folder."""
    markdown: bool = option("", "output", False)
    """Print the answer as Markdown."""

    def __call__(self) -> None:
        self.tell_shared_options()
        with output_for_programs(self.as_json or self.quiet or self.markdown):
            names = {"steps", "tries", "most", "processes", "workdir", "out"}
            asked: dict[str, Any] = {"budget_s": self.budget, "watcher": self.watcher()}
            asked |= self.model_dump(include=names)
            run, record = diagnose(self.script, self.arguments, **asked)
        if self.markdown and record is not None:
            from trainlab.analysis.diagnosis import diagnosis_document
            from trainlab.report.markdown import markdown_of

            sys.stdout.write(markdown_of(diagnosis_document(record, self.words)))
        else:
            self.show_diagnosis(run, is_cut_short=record is None)
