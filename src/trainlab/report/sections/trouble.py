"""What went wrong: trials that did not end well; apart from them, notes of what could not be shown."""

from collections import Counter
from collections.abc import Iterable, Sequence

from trainlab.analysis.document import Listing, Section, Table
from trainlab.analysis.evidence import Damage
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import Field, count, name, table_of, value
from trainlab.record.trial_record import TrialRecord
from trainlab.words import Words
from trainlab.words.error_lines import error_line

MOST_TRIALS = 50
"""Trials shown at first; the files have them all."""
MOST_ERRORS = 3
LONGEST_ERROR = 2000


def trouble_section(data: RunData, words: Words) -> Section | None:
    """Trials that did not end well, and what is damaged; None where there is nothing of either."""
    not_done = [trial for trial in data.evidence.trials if trial.state != "done"]
    damaged = [damaged_table(data.evidence.damaged, words)] if data.evidence.damaged else []
    if not not_done:
        return Section("trouble", words("trouble"), tuple(damaged)) if damaged else None
    semicolon = words("list_semicolon")
    fields: list[Field[TrialRecord]] = [
        name(words("trial"), lambda trial: trial.id),
        name(words("state"), lambda trial: words.named("state", trial.state)),
        value(words("updates"), lambda trial: count(trial.steps_done)),
        name(words("what_happened"), lambda trial: semicolon.join(remarks(trial, words))),
    ]
    table = table_of(
        words("trouble_table"),
        fields,
        not_done,
        cell=lambda trial: trial.cell,
        num_shown=MOST_TRIALS,
        is_sortable=True,
    )
    errors = {t.error.traceback: t for t in not_done if t.error is not None and t.error.traceback}
    listings = (
        Listing(words("traceback", trial=trial.id), _end(trace))
        for trace, trial in list(errors.items())[:MOST_ERRORS]
    )
    return Section("trouble", words("trouble"), (*damaged, table, *listings))


def damaged_table(damaged: Sequence[Damage], words: Words) -> Table:
    """What is left out, and why."""
    fields: list[Field[Damage]] = [
        name(words("trial"), lambda damage: damage.trial or ""),
        name(words("what_happened"), lambda damage: error_line(damage.reason, words.lang)),
    ]
    return table_of(words("damaged_table"), fields, damaged, num_shown=MOST_TRIALS)


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
    return Section("notes", words("notes"), (table,))


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
    if trial.diverged_at_step is None:
        return words("diverged_in_test", epoch=trial.epochs_done)
    if trial.diverged_loss is not None:
        step, loss = f"{trial.diverged_at_step:,}", f"{trial.diverged_loss:.2g}"
        return words("diverged_exploded", step=step, loss=loss)
    return words("diverged_at", step=f"{trial.diverged_at_step:,}")


def shortened(text: str, longest: int) -> str:
    """Cut after a whole word, and marked so, where it is longer."""
    if len(text) <= longest:
        return text
    start = text[:longest]
    return f"{start.rsplit(maxsplit=1)[0] if ' ' in start.strip() else start} …"


def _end(trace: str) -> str:
    """The end of a long traceback: what failed is named there."""
    return trace if len(trace) <= LONGEST_ERROR else "…" + trace[-LONGEST_ERROR:]
