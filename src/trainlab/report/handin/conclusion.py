"""The conclusion of a lab report, drafted for its author to edit."""

from collections.abc import Iterator, Sequence

from trainlab.analysis.answer import answer
from trainlab.analysis.document import Block, OwnPart, Paragraph
from trainlab.analysis.run_data import RunData
from trainlab.report.handin.parts import APPENDIX, CONCLUSION, DISCUSSION, PARTS
from trainlab.words import Words


def answer_sentences(data: RunData, words: Words) -> list[str]:
    """The answer of the run's report, sentence by sentence."""
    return [sentence.text for sentence in answer(data.evidence, data.findings, words).sentences]


def drafted_conclusion(sentences: Sequence[str], words: Words) -> tuple[Block, ...]:
    """A draft that says that it is one."""
    if not sentences:
        return (Paragraph(words("no_findings")),)
    return (Paragraph(words("lab_draft")), *map(Paragraph, sentences))


def drafted_notes(sentences: Sequence[str], words: Words) -> str:
    """A notes file to fill in: a heading for each part, and the conclusion to edit."""
    return "\n".join(_note_lines(sentences, words))


def _note_lines(sentences: Sequence[str], words: Words) -> Iterator[str]:
    yield f"<!-- {words('lab_notes_hint')} -->\n"
    for part in PARTS:
        if part is APPENDIX:
            continue
        yield f"# {words(part.title)}\n"
        if part is CONCLUSION:
            yield from (f"{sentence}\n" for sentence in sentences)
        elif part is DISCUSSION:
            yield f"<!-- {words('lab_discussion_hint')} -->\n"


def is_hint(piece: OwnPart) -> bool:
    """Whether a piece of notes is a comment, which is not for readers."""
    return piece.kind == "code" and piece.text.startswith("<!--") and piece.text.endswith("-->")
