"""A run's report as a lab report: purpose, environment, method, results, discussion, conclusion."""

from collections.abc import Iterator
from dataclasses import replace

from trainlab import __version__
from trainlab.analysis.document import (
    Block,
    Document,
    Listing,
    OwnText,
    Paragraph,
    Section,
    with_live_links,
)
from trainlab.analysis.names import factor_name
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import Field, name, table_of
from trainlab.record.digests import COMMAND, Digests
from trainlab.report.handin.conclusion import answer_sentences, drafted_conclusion, is_hint
from trainlab.report.handin.hand_in import HandIn
from trainlab.report.handin.notes import placed_notes
from trainlab.report.handin.parts import (
    CONCLUSION,
    DISCUSSION,
    METHOD,
    PARTS,
    PURPOSE,
    RESULTS,
    LabPart,
)
from trainlab.words import Words

SHOWN_DIGESTS = 12
"""Rows of the table of digests before it is unfolded."""


def lab_report_of(report: Document, data: RunData, hand_in: HandIn) -> Document:
    """The same report in the form of a lab report, with what its author wrote where it belongs."""
    words = Words(report.lang)
    digests = data.evidence.read_digests()
    own = _own_texts(hand_in, words)
    sections = tuple(
        _part_section(part, report, data, own.get(part), digests, words) for part in PARTS
    )
    return replace(
        report,
        byline=_byline(hand_in, words),
        sections=with_live_links(sections),
        made_by=words("lab_made_by", version=__version__) if own else report.made_by,
        origin=hand_in.origin(report.lang, "" if digests is None else digests.all),
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
    digests: Digests | None,
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
    if part is METHOD and digests is not None:
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
