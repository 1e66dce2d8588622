"""A run's report as a lab report: its parts, who hands it in, and what she wrote."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from unicodedata import normalize

from markdown_it import MarkdownIt
from markdown_it.token import Token

from trainlab import __version__
from trainlab.analysis import document
from trainlab.analysis.answer import answer
from trainlab.analysis.document import Document, Listing, OwnPart, OwnText, Paragraph, Section
from trainlab.analysis.evidence import grouped
from trainlab.analysis.finding import RunData, factor_name
from trainlab.analysis.tables import Field, name, table_of
from trainlab.errors import SpecError
from trainlab.record.files import reading
from trainlab.record.run_folder import COMMAND, Digests, run_digests
from trainlab.words import LANGUAGES, Words


@dataclass(frozen=True)
class HandIn:
    """What the author adds to a run's report; all of it may be empty."""

    author: str = ""
    student_id: str = ""
    course: str = ""
    notes: str = ""
    """Markdown."""


@dataclass(frozen=True, kw_only=True)
class Origin(HandIn):
    """What a report says about how it was written: all that is needed to write it again."""

    lang: str
    records: str
    """The digest of the records it was written from."""
    trainlab: str
    """The version that wrote it."""


def read_notes(path: Path) -> str:
    """The text of a notes file; SpecError where it is not text."""
    with reading(path):
        content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise SpecError([f"--notes: {path} is not UTF-8 text; save it as UTF-8"]) from None


NUMBERING = re.compile(r"^[\s(第]*(?:\d+(?:\.\d+)*|[一二三四五六七八九十]+)[\s.、):节章部分]*")
"""What may stand before a heading: `2.`, `(3)`, `四、`, `第五部分`."""


PARTS: dict[str, tuple[str, ...]] = {
    "purpose": (),
    "environment": ("environment",),
    "method": ("seen", "network", "method"),
    "results": (),
    "discussion": (),
    "conclusion": (),
    "appendix": ("repeat", "files"),
}
"""In the order of a lab report, with the sections of the run's report that stand in each, by their ids; the
results have every section that no other part has."""


def part_named(heading: str) -> str | None:
    """The part that a heading of the author's notes names, in any language, numbered or not."""
    plain = normalize("NFKC", heading).strip().rstrip(":").lower()
    text = NUMBERING.sub("", plain).strip()
    for part, words in product(PARTS, map(Words, LANGUAGES)):
        names = words(f"lab_{part}_names").split(words("list_comma"))
        if text in (words(f"lab_{part}").lower(), *names):
            return part
    return None


def placed_notes(markdown: str) -> dict[str, list[OwnPart]]:
    """What the author wrote, by the part it belongs to, without comments; what names no part is discussion.

    A heading that names a part opens it, at any level. Any other heading stays in the open part if it is
    deeper than the part's own, and else ends it."""
    placed: dict[str, list[OwnPart]] = {}
    part, part_level = "discussion", 0
    for level, piece in _pieces(MarkdownIt("commonmark").enable("table").parse(markdown), markdown):
        if piece.kind == "heading" and (named := part_named(piece.text)):
            part, part_level = named, level
            continue
        if piece.kind == "heading" and level <= part_level:
            part, part_level = "discussion", 0
        if not (piece.text.startswith("<!--") and piece.text.endswith("-->")):
            placed.setdefault(part, []).append(piece)
    return placed


def _pieces(tokens: Sequence[Token], markdown: str) -> Iterator[tuple[int, OwnPart]]:
    """Level of heading (0 for anything else) and piece, in the order written."""
    lines, list_depth, table_end = markdown.splitlines(), 0, -1
    for number, token in enumerate(tokens):
        list_depth += token.nesting if token.type.startswith("list_item") else 0
        if token.map is not None and token.map[0] < table_end:
            continue
        if token.type == "table_open" and token.map is not None:
            start, table_end = token.map
            yield 0, OwnPart("code", "\n".join(lines[start:table_end]))
        elif token.type in ("fence", "code_block", "html_block"):
            yield 0, OwnPart("code", token.content.rstrip("\n"))
        elif token.type == "inline" and (text := _plain(token)):
            opening = tokens[number - 1]
            if opening.type == "heading_open":
                yield int(opening.tag[1:]), OwnPart("heading", text)
            else:
                yield 0, OwnPart("item" if list_depth else "paragraph", text)


def _plain(token: Token) -> str:
    """Inline Markdown as plain text: emphasis without its stars, a link followed by its address."""
    text, address = "", ""
    for child in token.children or []:
        if child.type == "link_open":
            address = str(child.attrGet("href") or "")
        elif child.type == "link_close":
            text += f" ({address})" if not text.endswith(address) else ""
        elif child.type in ("softbreak", "hardbreak"):
            text += "\n"
        else:
            text += child.content
    # A line break within Chinese text is no space between words.
    text = re.sub(r"(?<=[\u2e80-\uffff])\s*\n\s*(?=[\u2e80-\uffff])", "", text.strip())
    return re.sub(r"\s*\n\s*", " ", text)


def answer_sentences(data: RunData, words: Words) -> list[str]:
    """The answer of the run's report, sentence by sentence."""
    return [sentence.text for sentence in answer(data.evidence, data.findings, words).sentences]


def drafted_notes(data: RunData, words: Words) -> str:
    """A notes file to fill in: a heading for each part, and the conclusion to edit."""
    below = {"discussion": [f"<!-- {words('lab_discussion_hint')} -->"]}
    below["conclusion"] = answer_sentences(data, words)
    lines = [f"<!-- {words('lab_notes_hint')} -->"]
    for part in [part for part in PARTS if part != "appendix"]:
        lines += [f"# {words(f'lab_{part}')}", *below.get(part, [])]
    return "\n\n".join(lines) + "\n"


NAMED_BY = {"author": "lab_author", "student_id": "lab_id", "course": "lab_course"}
"""What the line that names the author holds, and the words before each."""

SHOWN_DIGESTS = 12
"""Rows of the table of digests before it is unfolded."""


def lab_report_of(report: Document, data: RunData, hand_in: HandIn) -> Document:
    """The same report in the form of a lab report, with what its author wrote where it belongs: before the
    sections of a part."""
    words, digests = Words(report.lang), run_digests(data.evidence.folder)
    named = ((words(key), getattr(hand_in, field)) for field, key in NAMED_BY.items())
    byline = [label + words("colon") + text for label, text in named if text]
    key = "lab_written_by" if hand_in.author else "lab_written_by_author"
    label, placed = words(key, author=hand_in.author), placed_notes(hand_in.notes)
    part_of = {section: part for part, sections in PARTS.items() for section in sections}
    inner = grouped(report.sections, lambda section: part_of.get(section.id, "results"))
    parts = []
    for part in PARTS:
        own = [OwnText(label, tuple(placed[part]))] if part in placed else []
        blocks: list[document.Block] = list(_purpose(data, words)) if part == "purpose" else []
        blocks += own
        # A section that is called like the part gives it its blocks rather than a heading of its own.
        of_part = inner.get(part, [])
        blocks += [block for section in of_part if section.id == part for block in section.blocks]
        nested = [section for section in of_part if section.id != part]
        if part == "method":
            nested.append(_digest_section(digests, words))
        if part == "discussion" and not own:
            blocks.append(Paragraph(words("lab_no_discussion")))
        if part == "conclusion" and not own:
            # A draft, which says that it is one.
            told = answer_sentences(data, words)
            texts = [words("lab_draft"), *told] if told else [words("no_findings")]
            blocks += map(Paragraph, texts)
        title = words(f"lab_{part}")
        parts.append(Section(f"lab-{part}", title, tuple(blocks), tuple(nested)))
    origin = {"lang": report.lang, "records": digests.all, "trainlab": __version__}
    return replace(
        report,
        byline=" · ".join(byline),
        sections=document.with_live_links(parts),
        made_by=words("lab_made_by", version=__version__) if placed else report.made_by,
        origin=json.dumps(vars(hand_in) | origin, ensure_ascii=False, sort_keys=True),
    )


def _purpose(data: RunData, words: Words) -> Iterator[document.Block]:
    """The question as it was asked, what was varied and how often it was repeated."""
    evidence, study = data.evidence, data.evidence.study
    title = words.builtin(study.title)
    yield Paragraph(title or words("no_question", workload=study.workload))
    for factor in evidence.factors:
        levels = dict.fromkeys(
            words.setting(cell.levels[factor]) for cell in evidence.cells if factor in cell.levels
        )
        yield Paragraph(
            words("lab_varied", factor=factor_name(factor, words), levels=words.listed(levels))
        )
    if study.learn:
        yield Paragraph(words("lab_repeated", seeds=len(study.seeds)))


def _digest_section(digests: Digests, words: Words) -> Section:
    """What the raw records are, and how to see that they are still the same."""
    fields: list[Field[tuple[str, str]]] = [
        name(words("lab_record"), lambda row: row[0]),
        name("SHA-256", lambda row: row[1]),
    ]
    rows = [(words("lab_all_records"), digests.all), *digests.parts.items()]
    table = table_of(words("lab_digests_table"), fields, rows)
    blocks = (
        Paragraph(words("lab_digests_intro", number=digests.num_files)),
        replace(table, is_code=True, is_sortable=True, num_shown=SHOWN_DIGESTS),
        Listing(words("lab_digests_command"), COMMAND, "sh"),
    )
    return Section("digests", words("lab_digests"), blocks)
