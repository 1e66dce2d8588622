"""Numbers of figures and tables, in reading order and alike in every format."""

from trainlab.report.document import Document, Drawing, Figure, Table


class Numbers:
    """Counts a document's figures and tables once."""

    def __init__(self, document: Document) -> None:
        blocks = list(document.all_blocks())
        drawn = [block for block in blocks if isinstance(block, Figure | Drawing)]
        tables = [block for block in blocks if isinstance(block, Table)]
        self._figures = {block.id: number for number, block in enumerate(drawn, start=1)}
        # By identity: two tables may be equal in every field.
        self._tables = {id(block): number for number, block in enumerate(tables, start=1)}

    def figure(self, block: Figure | Drawing) -> int:
        """Of a chart or drawing, from 1."""
        return self._figures[block.id]

    def table(self, block: Table) -> int:
        """Of a table, from 1."""
        return self._tables[id(block)]
