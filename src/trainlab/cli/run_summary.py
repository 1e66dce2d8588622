"""What a run came to, for people and for programs; read from its records."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from trainlab.analysis.answer import answer, answer_blocks, open_blocks, why_blocks
from trainlab.analysis.cold_start import cold_start, cold_table
from trainlab.analysis.cost import (
    cost_table,
    memory_table,
    method_text,
    phases_of_step,
    step_table,
    warning_text,
)
from trainlab.analysis.document import Block, Paragraph
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, RunData, by_importance
from trainlab.analysis.layers import layer_table, layer_times
from trainlab.analysis.learning import epoch_table, learn_table
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.method import overhead_text, overheads
from trainlab.analysis.operators import TOP, Sort, operator_table, outside_us, ranked
from trainlab.analysis.overview import data_of, divergence_text, findings, note_counts, shortened
from trainlab.analysis.roofline import step_roofline
from trainlab.analysis.scripts import script_times, seen_table, step_parts_table, time_table
from trainlab.analysis.tables import bullets
from trainlab.cli.live_progress import showing_status
from trainlab.cli.output import print_json, say
from trainlab.errors import MissingExtraError
from trainlab.lab import Run
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import DiagnosisRecord
from trainlab.record.trial_record import SCRIPT_EXIT, DataRecord, TrialRecord
from trainlab.report.repeat import overridden_text
from trainlab.report.terminal import print_blocks
from trainlab.words import Words
from trainlab.words.error_lines import error_line

LONGEST_ERROR = 400
"""Letters of an error; the trial's record has it in full."""
MOST_DAMAGED = 5
"""Damaged files that are named; `verify` names them all."""
MOST_PENDING = 5
"""Trials that never ran and are named one by one; of more, the findings give the number."""


def show_outcome(run: Run, words: Words, *, as_json: bool, quiet: bool, report: bool) -> None:
    """Prints what the run came to; a study also gets its report, whatever is printed."""
    data = data_of(run.evidence())
    if as_json:
        print_json({"run": str(run.path), **evidence_json(data.evidence)})
    elif quiet:
        sys.stdout.write(f"{run.path}\n")
    else:
        print_summary(Console(), run, data, words)
    if report and data.evidence.study.cells:
        _write_report(run, data, words, Console(quiet=as_json or quiet))
    elif report and data.evidence.learned:
        command = shlex.join(["trainlab", "report", str(run.path)])
        say(Console(quiet=as_json or quiet), words("report_with", command=command))


def _write_report(run: Run, data: RunData, words: Words, console: Console) -> None:
    from trainlab.report.contents import report_of
    from trainlab.report.writing import write_document

    try:
        with showing_status(Console(stderr=True, quiet=console.quiet), "writing_report", words):
            document = report_of(data, words.lang)
            (path,) = write_document(document, ("html",), run.report_folder)
    except MissingExtraError as error:
        say(console, words("no_report", why=error_line(str(error), words.lang)))
    else:
        say(console, words("report_at", path=path), "bold")


def print_summary(
    console: Console, run: RunFolder, data: RunData, words: Words, *, with_all: bool = False
) -> None:
    """Tables of what was learned and what it costs, the data used, the answer, and what to do next."""
    evidence = data.evidence
    if not evidence.study.cells:
        print_blocks(console, [epoch_table(evidence, words)], words)
        print_script(console, evidence, words)
        for measurement in evidence.measured:
            print_measurement(console, evidence.name, measurement, words)
    print_study(console, data, words, with_all=with_all)
    print_data(console, evidence, words)
    if (changed := overridden_text(evidence.record, evidence.study, words)) is not None:
        say(console, changed)
    print_answer(console, data, words)
    if not with_all:
        command = shlex.join(["trainlab", "show", str(run.path), "--all"])
        say(console, words("all_findings", command=command), "dim")
    say(console, words("run_folder", path=run.path))
    if any(trial.state in ("pending", "running", "interrupted") for trial in evidence.trials):
        command = shlex.join(["trainlab", "resume", str(run.path)])
        say(console, words("resume_it", command=command))
    if run.logs_folder.name in evidence.list_files():
        say(console, words("printed_at", path=run.path / run.logs_folder.name))
    if "tensorboard" in evidence.list_files():
        say(console, words("look_at_it", command=shlex.join(["trainlab", "board", str(run.path)])))


def print_results(console: Console, data: RunData, words: Words, *, with_all: bool = False) -> None:
    """The cells side by side, the data used, and the answer."""
    print_study(console, data, words, with_all=with_all)
    print_data(console, data.evidence, words)
    print_answer(console, data, words)


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


def print_answer(console: Console, data: RunData, words: Words) -> None:
    """The question and its answer, why it is so, and what is left open."""
    for finding in data.findings:
        if finding.kind == "unfinished":
            say(console, finding.sentence(words), "yellow")
    found = answer(data.evidence, data.findings, words)
    parts = {
        words.builtin(data.evidence.study.title) or words("answer"): answer_blocks(found, words),
        words("why_so"): why_blocks(found),
        words("left_open"): open_blocks(found, words),
    }
    for title, blocks in parts.items():
        if blocks:
            console.print()
            console.print(Text(title, "bold underline"))
            print_blocks(console, blocks, words)
    console.print()


def print_study(console: Console, data: RunData, words: Words, *, with_all: bool = False) -> None:
    """The cells side by side, what went wrong, and all findings where asked for."""
    evidence = data.evidence
    if evidence.study.cells:
        tables = [learn_table(evidence, words)] if evidence.learned else []
        tables += [cost_table(evidence, words)] if evidence.measured else []
        print_blocks(console, tables, words)
        print_script(console, evidence, words)
    print_remarks(console, evidence, words)
    if with_all and data.findings:
        console.print(Text(words("findings"), "bold"))
        print_blocks(console, [bullets(by_importance(data.findings), words)], words)


def print_script(console: Console, evidence: Evidence, words: Words) -> None:
    """Of a script that was watched: its time by part, its median step, and what it was seen to use."""
    if all_times := script_times(evidence):
        steps = step_parts_table(all_times, words)
        tables = [time_table(all_times, words), steps, seen_table(all_times, words)]
        print_blocks(console, tables, words)


def print_measurement(
    console: Console,
    name: str,
    measurement: Measurement,
    words: Words,
    *,
    sort: Sort = "self",
    top: int = TOP,
) -> None:
    """The step, its phases, operators, layers, memory, the cold start, and what measuring cost."""
    has_phases = bool(measurement.summary.phases_ms)
    phases = [phases_of_step(measurement, words)] if has_phases else []
    print_blocks(console, [step_table(name, measurement, words), *phases], words)
    say(console, method_text(measurement, words))
    if (warning := warning_text(measurement, words)) is not None:
        say(console, warning, "yellow")
    blocks: list[Block | None] = []
    if measurement.operators is not None and top:
        blocks.append(operator_table(measurement, words, sort=sort, top=top))
    if measurement.layers is not None:
        blocks.append(layer_table(measurement, words))
    blocks += [memory_table(measurement, words), cold_table(measurement, words)]
    if prices := overheads(measurement):
        blocks.append(Paragraph(overhead_text(prices, words)))
    print_blocks(console, blocks, words)


def print_remarks(console: Console, evidence: Evidence, words: Words) -> None:
    """What is damaged; trials that did not end well; then every note once, with the number of trials that
    have it."""
    print_damaged(console, evidence, words)
    num_pending = sum(trial.state == "pending" for trial in evidence.trials)
    for trial in evidence.trials:
        if trial.state != "pending" or num_pending <= MOST_PENDING:
            for text, style in _remarks(trial, evidence, words):
                say(console, text, style)
    num_trials = len(evidence.trials)
    for text, number in note_counts(evidence.trials, words).items():
        trials = words("some_of_trials", some=number, all=num_trials)
        say(console, words("remark", trial=trials, text=text) if num_trials > 1 else text)


def print_damaged(console: Console, evidence: Evidence, words: Words) -> None:
    """The files for which trials are left out."""
    for damage in evidence.damaged[:MOST_DAMAGED]:
        say(console, words("damage_left_out", reason=error_line(damage.reason, words.lang)), "red")
    if (more := len(evidence.damaged) - MOST_DAMAGED) > 0:
        say(console, words("damage_more", number=more, command="trainlab verify RUN"), "red")


def print_data(console: Console, evidence: Evidence, words: Words) -> None:
    """The data that was used; a subset is never passed off as the whole."""
    for text, is_subset in dict.fromkeys(
        (data_text(trial.data, words), trial.data.is_subset)
        for trial in evidence.trials
        if trial.data is not None
    ):
        say(console, text, "yellow" if is_subset else "")


def data_text(data: DataRecord, words: Words) -> str:
    """Which data, how much of it, and why it is a subset where it is."""
    text = words(
        "data_subset" if data.is_subset else "data_line",
        name=data.name,
        source=words.named("source", data.source),
        train=f"{data.num_train:,}",
        test=f"{data.num_test:,}",
    )
    if data.num_val:
        text = f"{text}\n{words('data_held_out', number=f'{data.num_val:,}')}"
    if not data.note:
        return text
    return words.sentences(text, words("data_why", why=error_line(data.note, words.lang)))


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """Trials and findings, of one run or of several that were pooled."""
    words = Words("en")
    script = evidence.study.script
    return {
        "study": evidence.name,
        **({} if script is None else {"script": script.model_dump(mode="json")}),
        "trials": [_trial_json(trial) | _script_json(trial, evidence) for trial in evidence.trials],
        "damaged": [asdict(damage) for damage in evidence.damaged],
        "findings": [_finding_json(finding, words) for finding in findings(evidence)],
    }


def measurement_json(measurement: Measurement, sort: Sort, top: int) -> dict[str, Any]:
    """All of a measurement as plain values."""
    roofline = step_roofline(measurement)
    cold = cold_start(measurement.costs, measurement.layers)
    values: dict[str, Any] = {
        "weights": "trained" if measurement.is_trained else "untrained",
        "settings": measurement.trial.settings,
        "resolved": measurement.trial.resolved,
        **asdict(measurement.summary),
        "overheads": [asdict(overhead) for overhead in overheads(measurement)],
        "limits": None if measurement.limits is None else measurement.limits.model_dump(),
        "roofline": None if roofline is None else asdict(roofline),
        "memory": None if measurement.memory is None else measurement.memory.model_dump(),
        "cold_start": None if cold is None else asdict(cold),
    }
    if measurement.operators is not None:
        values["operators"] = [asdict(row) for row in ranked(measurement.operators, sort)[:top]]
        values["outside_operators_us"] = outside_us(measurement.operators)
    if measurement.layers is not None:
        values["layers"] = [
            {
                **layer.row.model_dump(exclude={"forward_us", "backward_us"}),
                "forward_ms": layer.forward_ms,
                "backward_ms": layer.backward_ms,
            }
            for layer in layer_times(measurement.layers, measurement.summary.phases_ms)
        ]
    return values


def _finding_json(finding: Finding, words: Words) -> dict[str, Any]:
    plain = ("kind", "subject", "cells", "factor", "levels", "n", "test", "verdict", "numbers")
    return {
        **{name: getattr(finding, name) for name in plain},
        "interval": None if finding.interval is None else asdict(finding.interval),
        "confounds": [asdict(confound) for confound in finding.confounds],
        "sentence": finding.sentence(words),
    }


def _trial_json(trial: TrialRecord) -> dict[str, Any]:
    plain = {"id", "kind", "cell", "seed", "state", "final", "total_s", "epochs_done", "steps_done"}
    return {
        **trial.model_dump(include={*plain, "diverged_at_step", "diverged_loss", "data", "notes"}),
        "device": trial.resolved.get("device"),
        "error": None if trial.error is None else trial.error.message,
    }


def _script_json(trial: TrialRecord, evidence: Evidence) -> dict[str, Any]:
    """Of a trial of a script: its arguments, what it was seen to use, and its seconds by part."""
    script = evidence.study.script
    if script is None:
        return {}
    learned = evidence.learned.get(trial.cell, {}).get(trial.seed)
    watched = learned.watched if learned is not None and trial.kind == "learn" else None
    return {
        "arguments": list(script.arguments_for(trial.settings.get("script", {}), trial.seed)),
        "seen": trial.resolved,
        "wall_s": None if watched is None else watched.wall_s,
        "parts_s": None if watched is None else watched.parts_s,
        "overhead_s": None if watched is None else watched.overhead_s,
    }


def _remarks(trial: TrialRecord, evidence: Evidence, words: Words) -> Iterator[tuple[str, str]]:
    """What there is to say of a trial: lines with their styles."""
    is_lone = trial.kind == "learn" and trial.cell == "base"
    name = f"{words('seed')} {trial.seed}" if is_lone else trial.id

    def remark(text: str) -> str:
        return words("remark", trial=name, text=text)

    if trial.state in ("interrupted", "running", "pending"):
        state = words.named("state", trial.state)
        if trial.steps_done:
            state = words("stopped_after", state=state, steps=f"{trial.steps_done:,}")
        if epochs := evidence.begun.get(trial.id):
            planned = trial.settings.get("epochs")
            key = "epochs_recorded" if planned is not None else "epochs_so_far"
            state = words(key, state=state, done=len(epochs), epochs=planned)
        yield remark(state), "yellow"
    if trial.state == "diverged":
        text = divergence_text(trial, words)
        yield remark(f"{words.named('state', 'diverged')}{words('colon')}{text}"), "yellow"
    if trial.error is not None:
        message = error_line(trial.error.message, words.lang)
        if trial.error.kind == SCRIPT_EXIT:
            printed = words(
                "failed_printed", error=shortened(message, LONGEST_ERROR), trial=trial.id
            )
            yield remark(printed), "red"
            return
        error = shortened(f"{trial.error.kind}: {message}", LONGEST_ERROR)
        # Of a script that left without an error, what it printed is all there is.
        key = (
            "failed_with" if trial.error.line or evidence.study.script is None else "failed_script"
        )
        yield remark(words(key, error=error)), "red"
