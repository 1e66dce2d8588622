"""A run's report as a lab report: its parts, who hands it in, and what she wrote."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

from markdown_it import MarkdownIt
from markdown_it.token import Token

from trainlab import __version__
from trainlab.analysis.answer import answer
from trainlab.analysis.document import (
    Block,
    Document,
    Listing,
    OwnPart,
    OwnText,
    Paragraph,
    Section,
    with_live_links,
)
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

    def origin(self, lang: str, digest: str) -> str:
        """All that is needed to write the same report of the same run again, as JSON."""
        value = {**vars(self), "lang": lang, "records": digest, "trainlab": __version__}
        return json.dumps(value, ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True)
class Origin:
    """What a report says about how it was written."""

    hand_in: HandIn | None
    """None for a report that was not written to be handed in."""
    lang: str
    records: str = ""
    """The digest of the records it was written from."""
    trainlab: str = ""
    """The version that wrote it."""


def read_origin(text: str) -> Origin:
    """The origin from its JSON; ValueError where it is none."""
    value: Any = json.loads(text)
    names = {*(field.name for field in fields(HandIn)), "lang", "records", "trainlab"}
    if not isinstance(value, dict) or set(value) != names or not _all_texts(value):
        raise ValueError("not the origin of a report")
    hand_in = HandIn(**{field.name: value[field.name] for field in fields(HandIn)})
    return Origin(hand_in, value["lang"], value["records"], value["trainlab"])


def read_notes(path: Path) -> str:
    """The text of a notes file; SpecError where it is not text."""
    with reading(path):
        content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise SpecError([f"--notes: {path} is not UTF-8 text; save it as UTF-8"]) from None


def _all_texts(value: dict[str, Any]) -> bool:
    return all(isinstance(text, str) for text in value.values())


NUMBERING = re.compile(r"^[\s(第]*(?:\d+(?:\.\d+)*|[一二三四五六七八九十]+)[\s.、):节章部分]*")
"""What may stand before a heading: `2.`, `(3)`, `四、`, `第五部分`."""


@dataclass(frozen=True)
class LabPart:
    """One part."""

    id: str
    title: str
    """The key of its title in the words."""
    names: str
    """The key of what authors call it, with commas between."""
    sections: tuple[str, ...] = ()
    """Sections of the run's report that stand in it, by their ids."""


PURPOSE = LabPart("lab-purpose", "lab_purpose", "lab_purpose_names")
ENVIRONMENT = LabPart(
    "lab-environment", "lab_environment", "lab_environment_names", ("environment",)
)
METHOD = LabPart("lab-method", "lab_method", "lab_method_names", ("seen", "network", "method"))
RESULTS = LabPart("lab-results", "lab_results", "lab_results_names")
"""Also has every section that no other part has."""
DISCUSSION = LabPart("lab-discussion", "lab_discussion", "lab_discussion_names")
CONCLUSION = LabPart("lab-conclusion", "lab_conclusion", "lab_conclusion_names")
APPENDIX = LabPart("lab-appendix", "lab_appendix", "lab_appendix_names", ("repeat", "files"))
PARTS = (PURPOSE, ENVIRONMENT, METHOD, RESULTS, DISCUSSION, CONCLUSION, APPENDIX)
"""In the order of a lab report."""


def part_named(heading: str) -> LabPart | None:
    """The part that a heading of the author's notes names, in any language, numbered or not."""
    plain = normalize("NFKC", heading).strip().rstrip(":").strip().lower()
    for text in (plain, NUMBERING.sub("", plain).strip()):
        for part in PARTS:
            if text in _names_of(part):
                return part
    return None


def _names_of(part: LabPart) -> set[str]:
    names: set[str] = set()
    for lang in LANGUAGES:
        words = Words(lang)
        names |= {words(part.title).lower(), *words(part.names).split(words("list_comma"))}
    return names


Placed = dict[LabPart, tuple[OwnPart, ...]]


def placed_notes(markdown: str) -> Placed:
    """What the author wrote, by the part it belongs to; what names no part goes into the discussion.

    A heading that names a part opens it, at any level. Any other heading stays in the open part if it is
    deeper than the part's own, and else ends it.
    """
    placed: dict[LabPart, list[OwnPart]] = {}
    part, part_level = DISCUSSION, 0
    for level, piece in _pieces(MarkdownIt("commonmark").enable("table").parse(markdown), markdown):
        if piece.kind == "heading" and (named := part_named(piece.text)):
            part, part_level = named, level
            continue
        if piece.kind == "heading" and level <= part_level:
            part, part_level = DISCUSSION, 0
        placed.setdefault(part, []).append(piece)
    return {part: tuple(pieces) for part, pieces in placed.items()}


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
    lines = [line.strip() for line in text.splitlines()]
    joined = lines[0] if lines else ""
    for line in lines[1:]:
        between_wide = joined[-1:] >= "\u2e80" and line[:1] >= "\u2e80"
        joined += line if between_wide else f" {line}"
    return joined


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


SHOWN_DIGESTS = 12
"""Rows of the table of digests before it is unfolded."""


def lab_report_of(report: Document, data: RunData, hand_in: HandIn) -> Document:
    """The same report in the form of a lab report, with what its author wrote where it belongs."""
    words = Words(report.lang)
    digests = run_digests(data.evidence.folder)
    own = _own_texts(hand_in, words)
    sections = tuple(
        _part_section(part, report, data, own.get(part), digests, words) for part in PARTS
    )
    return replace(
        report,
        byline=_byline(hand_in, words),
        sections=with_live_links(sections),
        made_by=words("lab_made_by", version=__version__) if own else report.made_by,
        origin=hand_in.origin(report.lang, digests.all),
    )


def _byline(hand_in: HandIn, words: Words) -> str:
    facts = {
        "lab_author": hand_in.author,
        "lab_id": hand_in.student_id,
        "lab_course": hand_in.course,
    }
    return " · ".join(words(key) + words("colon") + text for key, text in facts.items() if text)


def _own_texts(hand_in: HandIn, words: Words) -> dict[LabPart, OwnText]:
    label = (
        words("lab_written_by", author=hand_in.author)
        if hand_in.author
        else words("lab_written_by_author")
    )
    placed = placed_notes(hand_in.notes)
    kept = {part: [p for p in pieces if not is_hint(p)] for part, pieces in placed.items()}
    return {part: OwnText(label, tuple(pieces)) for part, pieces in kept.items() if pieces}


def _part_section(
    part: LabPart,
    report: Document,
    data: RunData,
    own: OwnText | None,
    digests: Digests,
    words: Words,
) -> Section:
    """The part's own text stands before the sections in it."""
    taken = {section for other in PARTS for section in other.sections}
    inner = [
        section
        for section in report.sections
        if section.id in part.sections or (part is RESULTS and section.id not in taken)
    ]
    # A section that is called like the part gives it its blocks rather than a heading of its own.
    alike = [section for section in inner if section.id == part.id.removeprefix("lab-")]
    nested = [section for section in inner if section not in alike]
    blocks: list[Block] = list(_purpose(data, words)) if part is PURPOSE else []
    blocks += [own] if own else []
    blocks += [block for section in alike for block in section.blocks]
    if part is METHOD:
        nested.append(_digest_section(digests, words))
    if part is DISCUSSION and own is None:
        blocks.append(Paragraph(words("lab_no_discussion")))
    if part is CONCLUSION and own is None:
        blocks += drafted_conclusion(answer_sentences(data, words), words)
    return Section(part.id, words(part.title), tuple(blocks), tuple(nested))


def _purpose(data: RunData, words: Words) -> Iterator[Block]:
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
    return Section(
        "digests",
        words("lab_digests"),
        (
            Paragraph(words("lab_digests_intro", number=digests.num_files)),
            replace(table, is_code=True, is_sortable=True, num_shown=SHOWN_DIGESTS),
            Listing(words("lab_digests_command"), COMMAND, "sh"),
        ),
    )
