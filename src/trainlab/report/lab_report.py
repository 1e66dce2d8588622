"""A run's report as a lab report: its parts, who hands it in, and what she wrote."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainlab import __version__
from trainlab.analysis import document
from trainlab.analysis.answer import answer
from trainlab.analysis.document import Document, Listing, OwnPicture, OwnText, Paragraph, Section
from trainlab.analysis.evidence import grouped
from trainlab.analysis.finding import RunData, factor_name
from trainlab.analysis.tables import Field, name, table_of
from trainlab.record.run_folder import COMMAND, Digests, run_digests
from trainlab.report.notes import PARTS, Notes, notes_of
from trainlab.words import Words


@dataclass(frozen=True)
class HandIn:
    """What the author adds to a run's report; all of it may be empty."""

    author: str = ""
    student_id: str = ""
    class_name: str = ""
    course: str = ""
    teacher: str = ""
    partner: str = ""
    date: str = ""
    notes: str = ""
    """Markdown."""
    pictures: Mapping[str, OwnPicture] = field(default_factory=dict)
    """Those of the notes, by their addresses."""

    def own(self) -> Notes:
        """What the author wrote, as parts."""
        return notes_of(self.notes, lambda address: self.pictures.get(address, "notes_missing"))


@dataclass(frozen=True, kw_only=True)
class Origin(HandIn):
    """What a report says about how it was written: all that is needed to write it again."""

    lang: str
    records: str
    """The digest of the records it was written from."""
    trainlab: str
    """The version that wrote it."""


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


NAMED_BY = {
    "author": "lab_author",
    "student_id": "lab_id",
    "class_name": "lab_class",
    "course": "lab_course",
    "teacher": "lab_teacher",
    "partner": "lab_partner",
    "date": "lab_date",
}
"""What stands on the cover, and the words before each."""

SHOWN_DIGESTS = 12
"""Rows of the table of digests before it is unfolded."""


def lab_report_of(report: Document, data: RunData, hand_in: HandIn) -> Document:
    """The same report in the form of a lab report, with what its author wrote where it belongs: before the
    sections of a part."""
    words, digests = Words(report.lang), run_digests(data.evidence.folder)
    named = ((words(key), getattr(hand_in, field)) for field, key in NAMED_BY.items())
    key = "lab_written_by" if hand_in.author else "lab_written_by_author"
    label, placed = words(key, author=hand_in.author), hand_in.own().placed
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
        byline=tuple((label, text) for label, text in named if text),
        sections=document.with_live_links(parts),
        made_by=words("lab_made_by", version=__version__) if placed else report.made_by,
        origin=json.dumps(
            vars(hand_in) | origin,
            ensure_ascii=False,
            sort_keys=True,
            default=lambda picture: vars(replace(picture, content="")),
        ),
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
