"""What a run came to, for people and for programs; read from its records."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.text import Text

from trainlab.analysis import answer, cost, learning, method, metrics, overview, scripts
from trainlab.analysis.cold_start import cold_start, cold_table
from trainlab.analysis.document import Block, Section
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import RunData, by_importance
from trainlab.analysis.layers import layer_table, layer_times
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.operators import TOP, Sort, operator_table, outside_us, ranked
from trainlab.analysis.roofline import step_roofline
from trainlab.analysis.tables import bullets
from trainlab.cli.live_progress import showing_status
from trainlab.cli.output import say
from trainlab.errors import MissingExtraError
from trainlab.lab import Run
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import SCRIPT_EXIT, DataRecord, TrialRecord
from trainlab.report.repeat import overridden_text
from trainlab.report.terminal import print_blocks
from trainlab.words import Words
from trainlab.words.error_lines import error_line

LONGEST_ERROR = 400
"""Letters of an error; the trial's record has it in full."""
MOST_DAMAGED = 5
"""Damaged files that are named; `verify` names them all."""
MOST_REASONS, MOST_REMARKS = 2, 3
"""Reasons of the answer, and remarks on trials, that are shown beside it."""
MOST_PENDING = 5
"""Trials that never ran and are named one by one; of more, the findings give the number."""


@dataclass(frozen=True)
class Summary:
    """Prints what runs have shown, part by part."""

    console: Console
    evidence: Evidence
    words: Words

    @cached_property
    def data(self) -> RunData:
        """All their records, with what is found in them."""
        return overview.data_of(self.evidence)

    def say(self, key: str, style: str = "", **values: object) -> None:
        """A sentence."""
        say(self.console, self.words(key, **values), style)

    def say_command(
        self, key: str, verb: str, run: RunFolder, *options: str, style: str = ""
    ) -> None:
        """A sentence about a command on a run."""
        command = shlex.join(["trainlab", verb, str(run.path), *options])
        self.say(key, style, command=command)

    def print_blocks(self, *blocks: Block | None) -> None:
        """Tables and texts."""
        print_blocks(self.console, blocks, self.words)

    def print_all(self, run: RunFolder, *, with_all: bool = False) -> None:
        """What a run has shown, and where to look; or all of it."""
        self.print_results(with_all=with_all)
        if not with_all:
            self.say_command("all_findings", "show", run, "--all", style="dim")
        self.say("run_folder", path=run.path)
        trials = self.evidence.trials
        outputs = [*run.trials_folder.glob("*/output.txt")] or [*run.logs_folder.glob("*")]
        if outputs and (with_all or any(trial.state == "failed" for trial in trials)):
            self.say("printed_at", path=os.path.commonpath(outputs))
        if with_all and "tensorboard" in run.file_names():
            self.say_command("look_at_it", "board", run)

    def print_results(self, *, with_all: bool = False) -> None:
        """The question with its answer, the settings side by side, why, and what is left open."""
        words, evidence = self.words, self.evidence
        found = answer.answer(evidence, self.data.findings, words)
        lead, *others = found.sections(words, None if with_all else MOST_REASONS)
        title = words.builtin(evidence.study.title) or lead.title
        if evidence.study.title and not found.is_final:
            title = words("so_far", title=title)
        self._print_section(title, lead)
        few = None if with_all else learning.epoch_table(evidence, words, with_all=False)
        self.print_blocks(answer.answer_table(self.data, words) or few)
        self._print_conditions(with_all=with_all)
        for part in others:
            self.console.print()
            self._print_section(part.title, part)
        if with_all:
            self.console.print()
            self.print_details()

    def _print_section(self, title: str, part: Section) -> None:
        self.console.print(Text(title, "bold underline"))
        self.print_blocks(*part.blocks)

    def _print_conditions(self, *, with_all: bool) -> None:
        """The data used, what was asked for otherwise than the study says, and what went wrong."""
        words, evidence = self.words, self.evidence
        say(self.console, overview.ran_line(evidence, words))
        # A subset is never passed off as the whole.
        used = [trial.data for trial in evidence.trials if trial.data is not None]
        texts = {data_text(one, words, in_full=with_all): one.is_subset for one in used}
        for text, is_subset in texts.items():
            say(self.console, text, "yellow" if is_subset else "")
        changed = overridden_text(evidence.record, evidence.study, words)
        if changed is not None:
            names = [name for name in evidence.record.overridden if name != "spreads"]
            short = words("overridden", changes=words.listed(names))
            say(self.console, changed if with_all else short)
        for finding in self.data.findings:
            if finding.kind == "unfinished":
                say(self.console, finding.sentence(words), "yellow")
        self.print_remarks(None if with_all else MOST_REMARKS)

    def write_report(self, run: Run) -> None:
        """Writes the report of a study, and says where it is."""
        from trainlab.report.contents import report_of
        from trainlab.report.writing import write_document

        words, progress = self.words, Console(stderr=True, quiet=self.console.quiet)
        try:
            with showing_status(progress, "writing_report", words):
                document = report_of(self.data, words.lang)
                (path,) = write_document(document, ("html",), run.report_folder)
        except MissingExtraError as error:
            self.say("no_report", why=error_line(str(error), words.lang))
        else:
            self.say("report_at", "bold", path=path)

    def print_diagnosis(self, run: RunFolder, *, with_all: bool = False) -> None:
        """What limits the script of a run, and where more is to be had."""
        from trainlab.analysis.diagnosis import diagnosis_blocks, diagnosis_document

        record = run.diagnosis.read()
        document = diagnosis_document(record, self.words)
        say(self.console, document.title, "bold underline")
        say(self.console, document.subtitle, "dim")
        self.console.print()
        self.print_blocks(*diagnosis_blocks(record, self.words))
        self.say("diagnosis_at", path=run.diagnosis.path)
        if not with_all:
            self.say_command("all_findings", "show", run, "--all", style="dim")
        self.say_command("report_with", "report", run)

    def print_details(self) -> None:
        """Every table and every finding."""
        evidence, words = self.evidence, self.words
        if evidence.study.cells:
            self.print_blocks(learning.learn_table(evidence, words) if evidence.learned else None)
            if evidence.measured:
                # What was measured again, too.
                self.print_blocks(replace(cost.cost_table(evidence, words), num_shown=None))
                self.say("method_times")
        else:
            self.print_blocks(learning.epoch_table(evidence, words))
        # Of a script: its time by part, its median step, and what it was seen to use.
        if all_times := scripts.script_times(evidence):
            for table in (scripts.time_table, scripts.step_parts_table, scripts.seen_table):
                self.print_blocks(table(all_times, words))
        for measurement in () if evidence.study.cells else evidence.measured:
            self.print_measurement(measurement)
        if self.data.findings:
            self.console.print(Text(words("findings"), "bold"))
            self.print_blocks(bullets(by_importance(self.data.findings), words))

    def print_measurement(self, one: Measurement, *, sort: Sort = "self", top: int = TOP) -> None:
        """The step, its phases, operators, layers, memory, the cold start, and what measuring cost."""
        words = self.words
        phases = cost.phases_of_step(one, words) if one.summary.phases_ms else None
        self.print_blocks(cost.step_table(self.evidence.name, one, words), phases)
        say(self.console, cost.method_text(one, words))
        if (warning := cost.warning_text(one, words)) is not None:
            say(self.console, warning, "yellow")
        if one.operators is not None and top:
            self.print_blocks(operator_table(one, words, sort=sort, top=top))
        if one.layers is not None:
            self.print_blocks(layer_table(one, words))
        tables = cost.memory_table(one, words), cold_table(one, words)
        self.print_blocks(*tables, method.overhead_table([one], words))

    def print_remarks(self, most: int | None = None) -> None:
        """What is damaged; trials that did not end well; then every note once, with the number of trials
        that have it; all of them or the first few."""
        self.print_damaged()
        remarks = list(self._all_remarks())
        for text, style in remarks[:most]:
            say(self.console, text, style)
        if most is not None and len(remarks) > most:
            self.say("and_more", number=len(remarks) - most)

    def _all_remarks(self) -> Iterator[tuple[str, str]]:
        """Texts with their styles."""
        words, trials = self.words, self.evidence.trials
        num_pending = sum(trial.state == "pending" for trial in trials)
        for trial in trials:
            if trial.state != "pending" or num_pending <= MOST_PENDING:
                is_lone = trial.kind == "learn" and trial.cell == "base"
                name = f"{words('seed')} {trial.seed}" if is_lone else trial.id
                for text, style in self._remarks(trial):
                    yield words("remark", trial=name, text=text), style
        for text, number in overview.note_counts(trials, words).items():
            some = words("some_of_trials", some=number, all=len(trials))
            yield words("remark", trial=some, text=text) if len(trials) > 1 else text, ""

    def print_damaged(self) -> None:
        """The files for which trials are left out."""
        damaged = self.evidence.damaged
        for damage in damaged[:MOST_DAMAGED]:
            self.say("damage_left_out", "red", reason=error_line(damage.reason, self.words.lang))
        if (more := len(damaged) - MOST_DAMAGED) > 0:
            self.say("damage_more", "red", number=more, command="trainlab verify RUN")

    def _remarks(self, trial: TrialRecord) -> Iterator[tuple[str, str]]:
        """What there is to say of a trial: texts with their styles."""
        words, evidence, error = self.words, self.evidence, trial.error
        if trial.state in ("interrupted", "running", "pending"):
            state = words.named("state", trial.state)
            if trial.steps_done:
                updates = words.counted("one_update", "num_updates", trial.steps_done)
                state = words("stopped_after", state=state, updates=updates)
            if (one := evidence.begun.get(trial.id)) and (epochs := one.epochs):
                planned = trial.settings.get("epochs")
                key = "epochs_recorded" if planned is not None else "epochs_so_far"
                state = words(key, state=state, done=len(epochs), epochs=planned)
            yield state, "yellow"
        if trial.state == "diverged":
            text = overview.divergence_text(trial, words)
            yield f"{words.named('state', 'diverged')}{words('colon')}{text}", "yellow"
        if error is not None:
            text, key = error_line(error.message, words.lang), "failed_printed"
            if error.kind != SCRIPT_EXIT:
                # Of a script that left without an error, what it printed is all there is.
                is_traced = error.line or evidence.study.script is None
                text, key = f"{error.kind}: {text}", "failed_with" if is_traced else "failed_script"
            text = overview.shortened(text, LONGEST_ERROR)
            yield words(key, error=text, trial=trial.id), "red"


def data_text(data: DataRecord, words: Words, *, in_full: bool = True) -> str:
    """Which data, how much of it, and why it is a subset where it is."""
    key = "data_subset" if in_full else "data_subset_line"
    text = words(
        key if data.is_subset else "data_line",
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
    words, script = Words("en"), evidence.study.script
    parts = (
        *("kind", "subject", "cells", "factor", "levels", "n"),
        *("test", "verdict", "numbers", "interval", "confounds"),
    )
    metric = next(iter(metrics.compared_metrics(evidence)), "")
    way = {True: "lower", False: "higher", None: None}[evidence.study.is_better_lower(metric)]
    return {
        "study": evidence.name,
        **({} if script is None else {"script": script}),
        "objective": {"metric": metric, "better": way},
        "trials": [_trial_json(trial, evidence) for trial in evidence.trials],
        "damaged": evidence.damaged,
        "findings": [
            {**{part: getattr(one, part) for part in parts}, "sentence": one.sentence(words)}
            for one in overview.findings(evidence)
        ],
    }


def _trial_json(trial: TrialRecord, evidence: Evidence) -> dict[str, Any]:
    """A trial; of a script also its arguments, what it was seen to use, and its seconds by part."""
    plain = {"id", "kind", "cell", "seed", "state", "final", "total_s", "epochs_done", "steps_done"}
    values = {
        **trial.model_dump(include={*plain, "diverged_at_step", "diverged_loss", "data", "notes"}),
        "device": trial.resolved.get("device"),
        "error": None if trial.error is None else trial.error.message,
    }
    if (script := evidence.study.script) is not None:
        learned = evidence.learned.get(trial.cell, {}).get(trial.seed)
        watched = learned.watched if learned is not None and trial.kind == "learn" else None
        arguments = script.arguments_for(trial.settings.get("script", {}), trial.seed)
        values |= {"arguments": arguments, "seen": trial.resolved}
        values |= {p: getattr(watched, p, None) for p in ("wall_s", "parts_s", "overhead_s")}
    return values


def measurement_json(measurement: Measurement, sort: Sort, top: int) -> dict[str, Any]:
    """All of a measurement as plain values."""
    values: dict[str, Any] = {
        "weights": "trained" if measurement.is_trained else "untrained",
        "settings": measurement.trial.settings,
        "resolved": measurement.trial.resolved,
        **asdict(measurement.summary),
        "overheads": method.overheads(measurement),
        "limits": measurement.limits,
        "roofline": step_roofline(measurement),
        "memory": measurement.memory,
        "cold_start": cold_start(measurement.costs, measurement.layers),
    }
    if measurement.operators is not None:
        values["operators"] = ranked(measurement.operators, sort)[:top]
        values["outside_operators_us"] = outside_us(measurement.operators)
    if measurement.layers is not None:
        times_ms = layer_times(measurement.layers, measurement.summary.phases_ms)
        apart = {"forward_us", "backward_us"}
        rows = [row.model_dump(exclude=apart) for row in measurement.layers.rows]
        values["layers"] = [
            row | {"forward_ms": forward_ms, "backward_ms": backward_ms}
            for row, (forward_ms, backward_ms) in zip(rows, times_ms, strict=True)
        ]
    return values
