"""What went wrong: trials that did not end well, as what they are."""

from trainlab.record.schema import TrialRecord
from trainlab.report.document import Block, Listing, Row, Section, table
from trainlab.report.entries import count, text
from trainlab.report.material import Material
from trainlab.words import Words

MOST_TRIALS = 50
"""Of those that did not end well; the files have them all."""
LONGEST_ERROR = 2000


def trouble_section(material: Material, words: Words) -> Section | None:
    """Trials that did not end well, as what they are; None where all did."""
    found = [one for one in material.evidence.trials if one.state != "done"]
    noted = [one for one in material.evidence.trials if one.state == "done" and one.notes]
    if not found and not noted:
        return None
    rows = [_trouble_row(trial, words) for trial in (*found, *noted)]
    headings = (
        (words("trial"), False),
        (words("state"), False),
        (words("updates"), True),
        (words("what_happened"), False),
    )
    blocks: list[Block] = [
        table(
            words("trouble_table"),
            headings,
            rows,
            is_sortable=True,
            num_shown=MOST_TRIALS if len(rows) > MOST_TRIALS else None,
            is_code=True,
        )
    ]
    errors = {t.error.traceback: t for t in found if t.error is not None and t.error.traceback}
    blocks += [
        Listing(words("traceback", trial=trial.id), _cut(told)) for told, trial in errors.items()
    ][:3]
    return Section("trouble", words("trouble"), tuple(blocks))


def _cut(told: str) -> str:
    """The end of a long error: what failed is told there."""
    return told if len(told) <= LONGEST_ERROR else "…" + told[-LONGEST_ERROR:]


def _trouble_row(trial: TrialRecord, words: Words) -> Row:
    told = list(trial.notes)
    if trial.error is not None:
        told.append(f"{trial.error.kind}: {trial.error.message}"[:LONGEST_ERROR])
    if trial.diverged_at_step is not None:
        told.append(words("diverged_at", step=f"{trial.diverged_at_step:,}"))
    return Row(
        (
            text(trial.id),
            text(words(f"state_{trial.state}")),
            count(trial.steps_done),
            text(words("list_semicolon").join(told)),
        ),
        cell=trial.cell,
    )
