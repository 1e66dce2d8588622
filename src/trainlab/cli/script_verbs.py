"""trainlab watch and diagnose: a training script of the user's, run as it is."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt
from rich.console import Console

from trainlab.cli.application import exit_for_failures
from trainlab.cli.live_progress import ConsoleWatcher
from trainlab.cli.options import Cost, Count
from trainlab.cli.output import output_for_programs, print_json, say, words_in
from trainlab.cli.parsing import placed, seconds_of, varied_of
from trainlab.cli.plan_text import plan_json, print_plan
from trainlab.errors import SpecError
from trainlab.execute.jobs import jobs_of
from trainlab.lab.driving import drive
from trainlab.lab.script_study import MOST_TRIED, PROCESSES, STEPS, found_script, script_study
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import DiagnosisRecord
from trainlab.spec import CostSpec, checked
from trainlab.spec.probe import probe_of
from trainlab.spec.script import options_in
from trainlab.words import Words


def watch(
    script: Path,
    arguments: list[str] | None = None,
    *,
    vary: list[str] | None = None,
    seeds: Count | None = None,
    metric: list[str] | None = None,
    metric_file: list[str] | None = None,
    seed_argument: str | None = None,
    design: str | None = None,
    steps: NonNegativeInt = 0,
    threads: Count | None = None,
    nproc: Count = 1,
    learn: bool = True,
    profile: bool = False,
    probe: list[str] | None = None,
    out: Path | None = None,
    tensorboard: bool = True,
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
    r"""A training script as it is, measured; its own arguments can be varied.

    vary NAME=LEVELS @what: An argument of the script and its levels, as batch-size=1,16,64; a variable of
      its environment as env.NAME=…; again for more.
    seeds COUNT @what: How many seeds: 1 to COUNT.
    metric NAME=PATTERN @what: A metric in a line that the script prints: a regular expression with one
      group, as 'accuracy=Accuracy: .*\((\d+)%\)'; again for more.
    metric_file NAME=FILE:COLUMN @what+: A metric in a CSV file that the script writes, as
      accuracy=log.csv:val_acc; again for more. Scalars that it writes for TensorBoard are taken without.
    seed_argument OPTION @what+: The script's option that takes the seed; none: it has none. Not given:
      --seed, where its text has it.
    steps COUNT @what+: End the script after so many updates; 0: when it ends.
    threads COUNT @what+: Threads of torch; not given: as the script and torch choose.
    nproc COUNT @what+: Start it by torchrun, in so many processes.
    learn @what: Run the whole script, once per seed.
    profile @measuring: Also measure what a step costs, in fresh processes that take turns.
    probe PROBE @measuring: Watch inside the script's model: LAYER:QUANTITY:REDUCER, as *.weight:grad:norm;
      again for more.
    tensorboard @output+: Write TensorBoard event files.

    trainlab watch train.py --epochs 3
    trainlab watch train.py --vary batch-size=1,16,64 --seeds 3 --profile
    trainlab watch train.py --metric 'accuracy=Accuracy: .*\((\d+)%\)'
    trainlab watch train.py --probe '*.weight:grad:norm'
    """
    from trainlab.cli.run_summary import show_outcome

    words = words_in(lang)
    if cost and not profile:
        first = next(iter(cost)).replace("_", "-")
        raise SpecError([f"--{first}: is about measuring cost; add --profile"])
    study = script_study(
        script,
        arguments or (),
        vary=varied_of(vary or (), as_written=True),
        design=design or "grid",
        seeds=tuple(range(1, (seeds or 1) + 1)),
        metrics=metrics_of(metric or ()),
        metric_files=metrics_of(metric_file or (), "--metric-file", "accuracy=log.csv:val_acc"),
        seed_argument=seed_argument,
        threads=threads,
        max_steps=steps,
        processes=nproc,
        cost=checked(CostSpec, cost, "--profile") if profile else None,
        learn=learn,
        probes=tuple(probe_of(text) for text in probe or ()),
        tensorboard=tensorboard,
        many=yes,
    )
    _tell_shared_options(Console(stderr=True, quiet=quiet), script, arguments or (), words)
    if dry_run:
        if as_json:
            print_json(plan_json(study))
        else:
            print_plan(Console(quiet=quiet), study, words, each_device=False)
        return
    with output_for_programs(as_json or quiet):
        outcome = drive(
            study,
            out=out,
            budget_s=seconds_of(budget),
            trial_timeout_s=seconds_of(trial_timeout, "--trial-timeout"),
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


def diagnose(
    script: Path,
    arguments: list[str] | None = None,
    *,
    tries: list[str] | None = None,
    most: Count = MOST_TRIED,
    steps: Annotated[int, Field(ge=30)] = STEPS,
    processes: Annotated[int, Field(ge=2)] = PROCESSES,
    budget: str | None = None,
    out: Path | None = None,
    markdown: bool = False,
    lang: str | None = None,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """What limits a training script, and the proof.

    tries --try NAME @measuring: Try only this: a limit, as data, or a change, as threads=1, same_batch or
      without=42; again for more.
    most COUNT @measuring: Possible limits to try.
    steps COUNT @measuring: Updates to watch, or 20 s if that is sooner.
    processes COUNT @measuring: Fresh processes of the script, changed and unchanged, at least.
    budget TIME @measuring: Stop measuring after this long, as 5m; what was measured by then counts.
    markdown --markdown @output: Print the answer as Markdown.

    trainlab diagnose train.py --epochs 3
    trainlab diagnose train.py --try data --try threads=1
    """
    from trainlab.lab.script_study import diagnose as run_diagnosis

    words, console = words_in(lang), Console(stderr=True, quiet=quiet)
    _tell_shared_options(console, script, arguments or (), words)
    with output_for_programs(as_json or quiet or markdown):
        found = run_diagnosis(
            script,
            arguments or (),
            steps=steps,
            tries=tries or (),
            most=most,
            processes=processes,
            budget_s=seconds_of(budget),
            out=out,
            watcher=ConsoleWatcher(console, words),
        )
    if markdown and found.record is not None:
        from trainlab.analysis.diagnosis import diagnosis_document
        from trainlab.report.markdown import markdown_of

        sys.stdout.write(markdown_of(diagnosis_document(found.record, words)))
    else:
        is_cut_short = found.record is None
        show_diagnosis(found.run, words, as_json=as_json, quiet=quiet, is_cut_short=is_cut_short)


def show_diagnosis(
    run: RunFolder, words: Words, *, as_json: bool, quiet: bool, is_cut_short: bool
) -> None:
    """The answer of a diagnosis that has run; KeyboardInterrupt where it was cut short, after how to go on
    with it."""
    if is_cut_short:
        command = shlex.join(["trainlab", "resume", str(run.path)])
        say(Console(stderr=True), words("resume_it", command=command))
        raise KeyboardInterrupt
    if as_json:
        print_json({"run": str(run.path), **run.diagnosis.read().model_dump(mode="json")})
    elif quiet:
        sys.stdout.write(f"{run.path}\n")
    else:
        print_diagnosis(Console(), run, run.diagnosis.read(), words)


def print_diagnosis(
    console: Console,
    run: RunFolder,
    record: DiagnosisRecord,
    words: Words,
    *,
    with_all: bool = False,
) -> None:
    """What limits the script of a run, and where more is to be had."""
    from trainlab.analysis.diagnosis import diagnosis_blocks, diagnosis_document
    from trainlab.report.terminal import print_blocks

    document = diagnosis_document(record, words)
    say(console, document.title, "bold underline")
    say(console, document.subtitle, "dim")
    console.print()
    print_blocks(console, diagnosis_blocks(record, words), words)
    say(console, words("diagnosis_at", path=run.diagnosis.path))
    if not with_all:
        command = shlex.join(["trainlab", "show", str(run.path), "--all"])
        say(console, words("all_findings", command=command), "dim")
    command = shlex.join(["trainlab", "report", str(run.path)])
    say(console, words("report_with", command=command))


def _tell_shared_options(
    console: Console, script: Path | str, arguments: Sequence[str], words: Words
) -> None:
    """Says which options trainlab has taken that the script has, too: it was not given them."""
    path, _, source = found_script(script, arguments)
    known = options_in(source)
    for option in taken_options(sys.argv[1:], arguments):
        if option in known:
            say(console, words("shared_option", option=option, script=path.name))


def taken_options(command_line: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """Of a command line, those that were not left for the script."""
    for word in takewhile(lambda word: word != "--", command_line):
        if word.startswith("--") and word not in arguments:
            yield word.partition("=")[0]
