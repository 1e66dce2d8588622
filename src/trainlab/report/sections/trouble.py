"""What went wrong: trials that did not end well, and notes of those that did."""

from trainlab.record.trial import TrialRecord
from trainlab.report.document import Listing, Section
from trainlab.report.run_data import RunData
from trainlab.report.tables.columns import Field, count, name, table_of, value
from trainlab.words import Words

MOST_TRIALS = 50
"""Trials shown at first; the files have them all."""
MOST_ERRORS = 3
LONGEST_ERROR = 2000


def trouble_section(data: RunData, words: Words) -> Section | None:
    """Trials that did not end well, then those with notes; None where there are neither."""
    trials = data.evidence.trials
    not_done = [trial for trial in trials if trial.state != "done"]
    noted = [trial for trial in trials if trial.state == "done" and trial.notes]
    if not not_done and not noted:
        return None
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
        (*not_done, *noted),
        cell=lambda trial: trial.cell,
        num_shown=MOST_TRIALS,
        is_sortable=True,
    )
    errors = {t.error.traceback: t for t in not_done if t.error is not None and t.error.traceback}
    listings = (
        Listing(words("traceback", trial=trial.id), _end(trace))
        for trace, trial in list(errors.items())[:MOST_ERRORS]
    )
    return Section("trouble", words("trouble"), (table, *listings))


def remarks(trial: TrialRecord, words: Words) -> list[str]:
    """A trial's notes, its error, and where it diverged."""
    texts = [words.note(note.code, note.values) for note in trial.notes]
    if trial.error is not None:
        texts.append(f"{trial.error.kind}: {trial.error.message}"[:LONGEST_ERROR])
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


def _end(trace: str) -> str:
    """The end of a long traceback: what failed is named there."""
    return trace if len(trace) <= LONGEST_ERROR else "…" + trace[-LONGEST_ERROR:]
