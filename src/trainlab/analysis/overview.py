"""Findings: what a study has shown, or could not show, as values with their sentences."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from trainlab.analysis.cost import cost_findings
from trainlab.analysis.document import Block, Listing, Notice, Section, Tone
from trainlab.analysis.evidence import ENDED_WELL, Damage, Evidence
from trainlab.analysis.factors import EFFECTS
from trainlab.analysis.finding import CAUSES, Finding, Kind, RunData, num_seeds
from trainlab.analysis.learning import learn_findings
from trainlab.analysis.probes import probe_findings
from trainlab.analysis.scripts import script_findings
from trainlab.analysis.search import search_findings
from trainlab.analysis.tables import Field, count, name, table_of, value
from trainlab.record.trial_record import TrialRecord
from trainlab.stats.verdict import FEWEST_SEEDS
from trainlab.words import Words
from trainlab.words.error_lines import error_line

ENDED_BADLY = ("failed", "interrupted", "running", "pending", "damaged")


def _unfinished_text(found: Finding, words: Words) -> str:
    states = [
        words("trials_in_state", number=number, state=words.named("state", state))
        for state in ENDED_BADLY
        if (number := found.numbers[f"num_{state}"])
    ]
    key = "unfinished" if found.num_done else "none_finished"
    return found.fill(words, key, states=words.listed(states))


def _undecided_text(found: Finding, words: Words) -> str:
    causes = [
        words(f"open_{cause}", number=number)
        for cause in CAUSES
        if (number := found.numbers[f"num_{cause}"])
    ]
    text = found.fill(words, "undecided", causes=words("list_semicolon").join(causes))
    if found.most_seeds != 1:
        return text
    too_few = words("undecidable", seeds=num_seeds(1, words), fewest=FEWEST_SEEDS)
    return words.sentences(text, too_few)


UNFINISHED = Kind("unfinished", "run", statement=_unfinished_text)
"""Trials that did not end well, or never ran."""
UNDECIDED = Kind("undecided", "method", statement=_undecided_text)
"""Comparisons that could not be decided, by cause, and what it would take."""
RAN_AS = Kind(
    "ran_as",
    "method",
    phrases=lambda found, words: {
        "same": (others := words.listed(found.cells[1:])) and words("ran_as_same", others=others)
    },
)
"""A cell that ran with fewer samples a batch than it asked for, since there are no more."""


def unfinished_findings(evidence: Evidence) -> Iterator[Finding]:
    """One finding, unless every trial ended well."""
    states: list[str] = [trial.state for trial in evidence.trials]
    states += ["damaged"] * evidence.num_damaged
    done = sum(state in ENDED_WELL for state in states)
    if done < len(states):
        numbers = {f"num_{state}": states.count(state) for state in ENDED_BADLY}
        about = {"subject": "trials", "cells": (), "n": done}
        yield UNFINISHED(**about, num_done=done, num_planned=len(states), **numbers)


def undecided_findings(others: Sequence[Finding]) -> Iterator[Finding]:
    """One finding, if a comparison among the others was not decided."""
    tested = [one for one in others if one.test and one.verdict is not None]
    undecided = [one for one in tested if one.verdict == "cannot tell"]
    if not undecided:
        return
    effects = [one for one in undecided if one.of_kind in EFFECTS]
    needed = [effect.seeds_needed for effect in effects if effect.seeds_needed is not None]
    causes = [one.open_because for one in undecided]
    yield UNDECIDED(
        subject="comparisons",
        cells=tuple(dict.fromkeys(one.cells[1] for one in undecided)),
        n=len(undecided),
        verdict="cannot tell",
        num_open=len(undecided),
        num_tested=len(tested),
        **{f"num_{cause}": causes.count(cause) for cause in CAUSES},
        most_seeds=max((effect.n for effect in effects), default=None),
        seeds_needed=min(needed, default=None),
    )


def ran_as_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of every cell whose batch is larger than the data; cells that are the same by it are named."""
    if evidence.study.script is not None:
        return  # which chooses its batches itself
    meanings = {
        cell.id: cell.settings.meaning | {"batch_size": evidence.level_that_ran(cell, "batch_size")}
        for cell in evidence.cells
    }
    for cell in evidence.cells:
        asked, ran = cell.settings.batch_size, meanings[cell.id]["batch_size"]
        if ran != asked:
            same = (one for one in meanings if meanings[one] == meanings[cell.id])
            yield RAN_AS(
                subject="batch_size",
                factor="batch_size",
                cells=tuple(dict.fromkeys((cell.id, *same))),
                asked=asked,
                ran=ran,
                n=sum(trial.cell == cell.id for trial in evidence.trials),
            )


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """What the study shows, and at the end what it cannot tell."""
    shown = [
        *unfinished_findings(evidence),
        *script_findings(evidence),
        *search_findings(evidence),
        *learn_findings(evidence),
        *probe_findings(evidence.probed),
        *cost_findings(evidence),
        *ran_as_findings(evidence),
    ]
    return (*shown, *undecided_findings(shown))


def data_of(evidence: Evidence) -> RunData:
    """The run as every section is written from."""
    found = findings(evidence)
    if evidence.diagnosis is not None:
        # A diagnosis compares its changes by rules of its own: a ratio has one verdict, not two.
        found = tuple(one for one in found if one.kind not in ("cost", "undecided"))
    return RunData(evidence, found)


def ran_line(evidence: Evidence, words: Words) -> str:
    """How many settings and seeds, where, once a trial has been started, and when."""
    machines = {one.gpus[0].name if one.gpus else one.cpu for one in evidence.environments.values()}
    return words(
        "ran_line" if machines else "ran_line_planned",
        settings=words.counted("one_setting", "num_settings", len(evidence.cells)),
        seeds=num_seeds(len(evidence.study.seeds), words),
        machine=words.listed(sorted(machines)),
        date=evidence.record.created[:10],
    )


def notices(data: RunData, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in data.evidence.trials]
    planned = len(states) + data.evidence.num_damaged
    is_running = data.evidence.is_running
    unfinished = "notice_running" if is_running else "notice_unfinished"
    counts = {
        unfinished: states.count("pending") + states.count("running"),
        "notice_failed": states.count("failed"),
        "notice_interrupted": states.count("interrupted"),
        "notice_damaged": data.evidence.num_damaged,
    }
    for key, number in counts.items():
        if number:
            tone: Tone = "warning" if key == "notice_running" else "failure"
            yield Notice(words(key, some=number, all=planned), tone)
    texts: dict[str, None] = {}
    for trial in data.evidence.trials:
        if (dataset := trial.data) is not None and dataset.is_subset:
            train, test = f"{dataset.num_train:,}", f"{dataset.num_test:,}"
            text = words("notice_subset", name=dataset.name, train=train, test=test)
            note = error_line(dataset.note, words.lang) if dataset.note else ""
            texts[words.sentences(text, note)] = None
    yield from map(Notice, texts)


def unstable_notices(data: RunData, words: Words) -> Iterator[Notice]:
    """A warning at the top of the report where measurements are unstable."""
    for one in data.findings:
        if one.kind == "unstable" and one.num_unstable:
            yield Notice(one.fill(words, "unstable_notice"))


MOST_TRIALS = 50
"""Trials shown at first; the files have them all."""
MOST_ERRORS = 3
LONGEST_ERROR = 2000


def trouble_section(data: RunData, words: Words) -> Section | None:
    """Trials that did not end well, and what is damaged; None where there is nothing of either."""
    well = ("done", "pending", "running") if data.evidence.is_running else ("done",)
    not_done = [trial for trial in data.evidence.trials if trial.state not in well]
    # What is left out, and why.
    blocks: list[Block] = []
    lost: list[Field[Damage]] = [
        name(words("trial"), lambda damage: damage.trial or ""),
        name(words("what_happened"), lambda damage: error_line(damage.reason, words.lang)),
    ]
    if left_out := data.evidence.damaged:
        blocks.append(table_of(words("damaged_table"), lost, left_out))
    semicolon = words("list_semicolon")
    fields: list[Field[TrialRecord]] = [
        name(words("trial"), lambda trial: trial.id),
        name(words("state"), lambda trial: words.named("state", trial.state)),
        value(words("updates"), lambda trial: count(trial.steps_done)),
        name(words("what_happened"), lambda trial: semicolon.join(remarks(trial, words))),
    ]
    if not_done:
        caption, size = words("trouble_table"), MOST_TRIALS
        shown = table_of(
            caption, fields, not_done, cell=lambda t: t.cell, num_shown=size, is_sortable=True
        )
        blocks.append(shown)
    errors = {t.error.traceback: t for t in not_done if t.error is not None and t.error.traceback}
    for trace, trial in list(errors.items())[:MOST_ERRORS]:
        # The end of a long traceback: what failed is named there.
        text = trace if len(trace) <= LONGEST_ERROR else f"…{trace[-LONGEST_ERROR:]}"
        blocks.append(Listing(words("traceback", trial=trial.id), text))
    return Section("trouble", words("trouble"), tuple(blocks)) if blocks else None


def note_section(data: RunData, words: Words) -> Section | None:
    """Notes of trials, each once; None where there are none."""
    counts = note_counts(data.evidence.trials, words)
    if not counts:
        return None
    fields: list[Field[tuple[str, int]]] = [
        name(words("what_happened"), lambda one: one[0]),
        value(words("num_trials"), lambda one: count(one[1])),
    ]
    table = table_of(words("note_table"), fields, counts.items())
    return Section("notes", words("notes"), (table,), is_folded=True)


def note_counts(trials: Iterable[TrialRecord], words: Words) -> Counter[str]:
    """Each note in words, and how many trials have it."""
    return Counter(
        text
        for trial in trials
        for text in dict.fromkeys(words.note(note.code, note.values) for note in trial.notes)
    )


def remarks(trial: TrialRecord, words: Words) -> list[str]:
    """A trial's error, and where it diverged."""
    texts = []
    if trial.error is not None:
        message = error_line(trial.error.message, words.lang)
        texts.append(shortened(f"{trial.error.kind}: {message}", LONGEST_ERROR))
    if trial.state == "diverged":
        texts.append(divergence_text(trial, words))
    return texts


def divergence_text(trial: TrialRecord, words: Words) -> str:
    """Where its loss stopped being finite, or exploded."""
    step = f"{trial.diverged_at_step or 0:,}"
    if trial.diverged_loss is not None:
        return words("diverged_exploded", step=step, loss=f"{trial.diverged_loss:.2g}")
    return words("diverged_at", step=step)


def shortened(text: str, longest: int) -> str:
    """Cut after a whole word, and marked so, where it is longer."""
    if len(text) <= longest:
        return text
    start = text[:longest]
    return f"{start.rsplit(maxsplit=1)[0] if ' ' in start.strip() else start} …"
