"""What every format writes about figures and tables alike: their numbers, and the notes of tables."""

from trainlab.analysis.document import Document, Drawing, Figure, Gallery, Table
from trainlab.words import Words


class Labels:
    """`Figure 1`, `Table 2`: figures and tables of a document, counted in reading order."""

    def __init__(self, document: Document, words: Words) -> None:
        blocks = list(document.all_blocks())
        figures = [block for block in blocks if isinstance(block, Figure | Drawing | Gallery)]
        tables = [block for block in blocks if isinstance(block, Table)]
        # By identity: two tables may be equal in every field.
        self._labels = {
            id(block): words(key, number=number)
            for key, counted in (("figure_number", figures), ("table_number", tables))
            for number, block in enumerate(counted, start=1)
        }

    def of(self, block: Figure | Drawing | Gallery | Table) -> str:
        """The label of one of them."""
        return self._labels[id(block)]


def table_note(table: Table, words: Words) -> str:
    """The note under a table, and how many rows are not shown; empty where there is neither."""
    notes = [table.note] if table.note else []
    if len(table.shown) < len(table.rows):
        notes.append(words("more_rows", shown=len(table.shown), number=len(table.rows)))
    return words.sentences(*notes)
