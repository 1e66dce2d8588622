"""What went wrong: trials that did not end well, as what they are."""

from trainlab.record.trial import TrialRecord
from trainlab.report.document import Block, Listing, Section
from trainlab.report.run_data import RunData
from trainlab.report.tables.columns import Field, count, name, table_of, value
from trainlab.words import Words

MOST_TRIALS = 50
"""Of those that did not end well; the files have them all."""
MOST_ERRORS = 3
LONGEST_ERROR = 2000


def trouble_section(data: RunData, words: Words) -> Section | None:
    """Trials that did not end well, as what they are; None where all did."""
    trials = data.evidence.trials
    unwell = [trial for trial in trials if trial.state != "done"]
    noted = [trial for trial in trials if trial.state == "done" and trial.notes]
    if not unwell and not noted:
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
        (*unwell, *noted),
        cell=lambda trial: trial.cell,
        num_shown=MOST_TRIALS,
        is_sortable=True,
    )
    blocks: list[Block] = [table]
    errors = {t.error.traceback: t for t in unwell if t.error is not None and t.error.traceback}
    blocks += [
        Listing(words("traceback", trial=trial.id), _end(trace)) for trace, trial in errors.items()
    ][:MOST_ERRORS]
    return Section("trouble", words("trouble"), tuple(blocks))


def remarks(trial: TrialRecord, words: Words) -> list[str]:
    """What a trial has to tell about itself."""
    texts = [words.note(note.code, note.values) for note in trial.notes]
    if trial.error is not None:
        texts.append(f"{trial.error.kind}: {trial.error.message}"[:LONGEST_ERROR])
    if trial.diverged_at_step is not None:
        texts.append(words("diverged_at", step=f"{trial.diverged_at_step:,}"))
    return texts


def _end(trace: str) -> str:
    """The end of a long error: what failed is told there."""
    return trace if len(trace) <= LONGEST_ERROR else "…" + trace[-LONGEST_ERROR:]
