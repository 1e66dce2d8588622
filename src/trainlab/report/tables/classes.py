"""Tables of classes: the confusion matrix, the pairs confused most often, the worst mistakes."""

import math

from trainlab.analysis.classes.confusion import Confusion, SeenMistake
from trainlab.analysis.document import Column, Entry, Row, Table
from trainlab.analysis.tables import Field, name, table_of, value
from trainlab.words import Words
from trainlab.words.numbers import count, percent

MOST_COLUMNS = 20
"""Classes of a matrix that can be read; of more, the pairs confused most often are listed."""
MOST_PAIRS = 15
LONGEST_NAME = 24
"""Letters of a class in a heading."""


def matrix_table(confusion: Confusion, words: Words) -> Table:
    """A row per true class, a column per class that was said, in per cent of the row."""
    largest = max(
        _share(confusion, true, said)
        for true in range(len(confusion.classes))
        for said in range(len(confusion.classes))
        if true != said
    )
    names = [short_name(one) for one in confusion.classes]
    return Table(
        caption=words("matrix_caption"),
        columns=(
            Column(words("matrix_corner")),
            *(Column(one, is_number=True) for one in names),
            Column(words("matrix_samples"), is_number=True),
        ),
        rows=tuple(
            Row(
                (
                    Entry(one),
                    *(_field(confusion, true, said, largest) for said in range(len(names))),
                    Entry(count(confusion.num_of(true)), confusion.num_of(true)),
                )
            )
            for true, one in enumerate(names)
        ),
        note=words("matrix_note"),
        is_matrix=True,
    )


def short_name(text: str) -> str:
    """A name that fits a heading."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _share(confusion: Confusion, true: int, said: int) -> float:
    of = confusion.num_of(true)
    return confusion.counts[true][said] / of if of else 0.0


def _field(confusion: Confusion, true: int, said: int, largest: float) -> Entry:
    share = _share(confusion, true, said)
    if share == 0:
        return Entry("", 0.0)
    if true == said:
        return Entry(share_text(share), share, tone="right", shade=share)
    # By the root: mistakes of a good model are few, and still differ.
    return Entry(share_text(share), share, tone="wrong", shade=math.sqrt(share / largest))


def share_text(share: float) -> str:
    """In per cent, without the sign; what is not nothing, or not all, does not look so."""
    if share == 1:
        return "100"
    text = f"{100 * share:.1f}"
    return {"0.0": "<0.1", "100.0": ">99.9"}.get(text, text)


def pair_table(confusion: Confusion, words: Words) -> Table:
    """What was taken for what most often, where a matrix would be too large to read."""
    number = range(len(confusion.classes))
    taken = [(a, b) for a in number for b in number if a != b and confusion.counts[a][b]]
    taken.sort(key=lambda pair: -confusion.counts[pair[0]][pair[1]])
    fields: list[Field[tuple[int, int]]] = [
        name(words("true_class"), lambda pair: confusion.classes[pair[0]]),
        name(words("said_class"), lambda pair: confusion.classes[pair[1]]),
        value(words("num_taken"), lambda pair: _counted(confusion.counts[pair[0]][pair[1]])),
        value(words("of_the_class"), lambda pair: _part(_share(confusion, *pair))),
    ]
    note = words("pairs_note", number=len(confusion.classes), file="trials/*/confusion.json")
    return table_of(words("pairs_caption"), fields, taken[:MOST_PAIRS], note)


def mistake_table(confusion: Confusion, words: Words) -> Table:
    """The worst mistakes where the inputs are no images."""
    fields: list[Field[SeenMistake]] = [
        name(words("mistake_sample"), lambda one: str(one.mistake.index)),
        name(words("mistake_seed"), lambda one: str(one.seed)),
        name(words("true_class"), lambda one: confusion.classes[one.mistake.true]),
        name(words("said_class"), lambda one: confusion.classes[one.mistake.said]),
        value(words("mistake_said_share"), lambda one: _part(one.mistake.said_probability)),
        value(words("mistake_true_share"), lambda one: _part(one.mistake.true_probability)),
    ]
    caption, note = words("mistakes_caption"), words("mistakes_note")
    return table_of(caption, fields, confusion.worst, note)


def _counted(number: int) -> Entry:
    return Entry(count(number), number)


def _part(share: float) -> Entry:
    return Entry(percent(share), share)
