"""Two runs side by side as a document: say, a laptop's and a server's."""

import math

from trainlab import __version__
from trainlab.analyse.runs import Beside, SideBySide
from trainlab.report.document import (
    Block,
    Document,
    Entry,
    Figure,
    Notice,
    Paragraph,
    Point,
    Points,
    Row,
    Section,
    table,
)
from trainlab.report.entries import mark_word, number, subject_told, text
from trainlab.report.figures.charts import dot_chart
from trainlab.report.figures.dots import Dot, Dots
from trainlab.report.material import Material
from trainlab.report.sections.answer import notices
from trainlab.report.sections.environment import environment_rows
from trainlab.report.sections.operators import operator_table
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference, metric_value

MOST_POINTS = 5
SHOWN = 20


def comparison_of(first: Material, second: Material, found: SideBySide, lang: str) -> Document:
    """The report of two runs, the first called A and the second B."""
    words = Words(lang)
    sections = [
        _answer(found, words),
        _machines(first, second, words),
        _costs(found, words),
        _learned(found, words),
        _operators(first, second, words),
        _differs(found, words),
    ]
    runs = {"A": first, "B": second}
    return Document(
        title=words(
            "compare_title",
            workload=first.evidence.study.workload,
            first=first.record.name,
            second=second.record.name,
        ),
        subtitle=words(
            "compare_subtitle",
            first=first.record.name,
            date_a=first.record.created[:10],
            second=second.record.name,
            date_b=second.record.created[:10],
        ),
        lang=lang,
        made_by=words("made_by", version=__version__),
        notices=tuple(
            Notice(f"{name}: {notice.text}", notice.tone)
            for name, run in runs.items()
            for notice in notices(run, words)
        ),
        sections=tuple(section for section in sections if section is not None),
        cells=tuple(dict.fromkeys(one.cell for one in (*found.costs, *found.learned))),
    )


def _answer(found: SideBySide, words: Words) -> Section:
    costs = sorted(found.costs, key=lambda one: -abs(math.log(_ratio(one).ratio.value)))
    decided = [one for one in (*costs, *found.learned) if one.found.verdict != "cannot tell"]
    chosen = (decided or [*costs, *found.learned])[:MOST_POINTS]
    return Section(
        "answer", words("compare_answer"), (Points(tuple(_point(one, words) for one in chosen)),)
    )


def _ratio(one: Beside) -> CostComparison:
    assert isinstance(one.found, CostComparison)
    return one.found


def _point(one: Beside, words: Words) -> Point:
    verdict = one.found.verdict
    subject = subject_told(one.subject, words)
    if isinstance(one.found, CostComparison):
        reach = one.found.ratio.interval
        told = words(
            "compare_cost_point",
            cell=one.cell,
            subject=subject,
            a=figure(one.a),
            b=figure(one.b),
            ratio=figure(one.found.ratio.value),
            reach=""
            if reach is None
            else words("reach", low=figure(reach.low), high=figure(reach.high)),
        )
    else:
        told = words(
            "compare_learn_point",
            cell=one.cell,
            subject=subject,
            a=metric_value(one.subject, one.a),
            b=metric_value(one.subject, one.b),
            difference=metric_difference(one.subject, one.b - one.a, words("points")),
        )
    return Point(told, verdict, words(mark_word(verdict)))


def _machines(first: Material, second: Material, words: Words) -> Section:
    sides = [environment_rows(run.evidence.environment, words) for run in (first, second)]
    names = list(dict.fromkeys(name for rows in sides for name, _ in rows))
    told = [
        {
            name: words("list_semicolon").join(v for known, v in rows if known == name)
            for name in names
        }
        for rows in sides
    ]
    rows = [Row((text(name), *(text(side[name]) for side in told))) for name in names]
    headings = ((words("what"), False), ("A", False), ("B", False))
    found = table(words("compare_machines"), headings, rows)
    return Section("environment", words("environment"), (found,))


def _costs(found: SideBySide, words: Words) -> Section | None:
    if not found.costs:
        return None
    rows = []
    for one in found.costs:
        compared = _ratio(one)
        reach = compared.ratio.interval
        ends = "" if reach is None else f"{figure(reach.low)}, {figure(reach.high)}"
        ratio = words("times", value=figure(compared.ratio.value))
        rows.append(_row(one, [number(one.a), number(one.b)], ratio, ends, words))
    subjects = dict.fromkeys(one.subject for one in found.costs)
    blocks: list[Block] = [_figure(found, subject, words) for subject in subjects]
    blocks.append(
        table(
            words("compare_costs_table"),
            _headings(words),
            rows,
            note=words("compare_costs_note"),
            is_sortable=True,
            num_shown=SHOWN if len(rows) > SHOWN else None,
            is_code=True,
        )
    )
    return Section("costs", words("compare_costs"), tuple(blocks))


def _figure(found: SideBySide, subject: str, words: Words) -> Figure:
    """A and B of every cell, as two dots."""
    mine = [one for one in found.costs if one.subject == subject]
    dots = tuple(
        Dot(one.cell, run, value, None, None)
        for one in mine
        for run, value in (("A", one.a), ("B", one.b))
    )
    title = subject_told(subject, words)
    told = words("list_comma").join(
        f"{one.cell} A {figure(one.a)}, B {figure(one.b)}" for one in mine[:24]
    )
    return Figure(
        id=f"beside-{subject.replace('/', '-').replace('_', '-')}",
        caption=title,
        alt=words("final_alt", metric=title, values=told),
        spec=dot_chart(Dots(subject.replace("/", "_"), dots), title, words, is_by_run=True),
    )


def _learned(found: SideBySide, words: Words) -> Section | None:
    if not found.learned:
        return None
    rows = []
    for one in found.learned:
        difference = metric_difference(one.subject, one.b - one.a, words("points"))
        values = [Entry(metric_value(one.subject, value), value) for value in (one.a, one.b)]
        rows.append(_row(one, values, difference, _reach(one), words))
    told = table(
        words("compare_learned_table"),
        _headings(words),
        rows,
        is_sortable=True,
        num_shown=SHOWN if len(rows) > SHOWN else None,
        is_code=True,
    )
    return Section("learning", words("compare_learned"), (told,))


def _reach(one: Beside) -> str:
    """Of the difference, without its unit."""
    if isinstance(one.found, CostComparison) or one.found.difference is None:
        return ""
    ends = one.found.difference.interval
    if ends is None:
        return ""
    low, high = (metric_difference(one.subject, end, "") for end in (ends.low, ends.high))
    return f"{low.strip()}, {high.strip()}"


def _operators(first: Material, second: Material, words: Words) -> Section | None:
    """The top ten of the first cell of each run, by mode."""
    blocks: list[Block] = []
    for mode in ("train", "inference"):
        sides = [
            next((one for one in run.measured(mode) if one.operators is not None), None)
            for run in (first, second)
        ]
        if any(side is None for side in sides):
            continue
        for name, side in zip("AB", sides, strict=True):
            assert side is not None
            made = operator_table(side, words)
            blocks.append(
                table(
                    f"{name}: {made.caption}",
                    tuple((column.heading, column.is_number) for column in made.columns),
                    list(made.rows),
                    note=made.note,
                    is_sortable=True,
                    num_shown=made.num_shown,
                    is_code=True,
                )
            )
    if not blocks:
        return None
    return Section("operators", words("operators"), (Paragraph(words("operators_intro")), *blocks))


def _differs(found: SideBySide, words: Words) -> Section:
    blocks: list[Block] = []
    if found.confounds:
        headings = ((words("what"), False), ("A", False), ("B", False))
        rows = [
            Row(
                (
                    text(words.differing(one.what)),
                    text(words.level(one.first)),
                    text(words.level(one.second)),
                )
            )
            for one in found.confounds
        ]
        blocks.append(Paragraph(words("compare_differs_intro")))
        blocks.append(
            table(
                words("compare_differs"),
                headings,
                rows,
                is_code=True,
                is_sortable=True,
                num_shown=30 if len(rows) > 30 else None,
            )
        )
    else:
        blocks.append(Paragraph(words("compare_nothing")))
    for run, cells in (("A", found.only_a), ("B", found.only_b)):
        if cells:
            told = words("list_comma").join(cells)
            blocks.append(Paragraph(words("compare_only", run=run, cells=told)))
    return Section("differs", words("compare_differs"), tuple(blocks))


def _headings(words: Words) -> tuple[tuple[str, bool], ...]:
    return (
        (words("cell"), False),
        (words("figure"), False),
        ("A", True),
        ("B", True),
        (words("compare_b_over_a"), True),
        (words("interval"), True),
        (words("verdict"), False),
    )


def _row(one: Beside, values: list[Entry], change: str, ends: str, words: Words) -> Row:
    verdict = one.found.verdict
    return Row(
        (
            text(one.cell),
            text(subject_told(one.subject, words)),
            *values,
            text(change),
            text(ends),
            Entry(words(mark_word(verdict)), mark=verdict),
        ),
        cell=one.cell,
    )
