"""What is read first: notices, and the question with its answer."""

from collections.abc import Iterator

from trainlab.analysis.answer import Answer, OpenPoint, answer
from trainlab.analysis.charts import cost_values
from trainlab.analysis.cost import CostRatio, Unstable
from trainlab.analysis.document import (
    Block,
    Figure,
    Notice,
    Paragraph,
    Section,
    Statement,
    Statements,
)
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.run_data import RunData
from trainlab.analysis.scripts import command_text
from trainlab.report.sections.factors import cost_figure
from trainlab.report.sections.learning import curve_figure, metric_figure
from trainlab.report.sections.operators import operator_figure
from trainlab.spec import Study
from trainlab.words import Words
from trainlab.words.error_lines import error_line


def notices(data: RunData, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in data.evidence.trials]
    planned = len(states) + data.evidence.num_damaged
    counts = {
        "notice_unfinished": states.count("pending") + states.count("running"),
        "notice_failed": states.count("failed"),
        "notice_interrupted": states.count("interrupted"),
        "notice_damaged": data.evidence.num_damaged,
    }
    for key, number in counts.items():
        if number:
            yield Notice(words(key, some=number, all=planned), "failure")
    texts: dict[str, None] = {}
    for trial in data.evidence.trials:
        if (dataset := trial.data) is not None and dataset.is_subset:
            train, test = f"{dataset.num_train:,}", f"{dataset.num_test:,}"
            text = words("notice_subset", name=dataset.name, train=train, test=test)
            note = error_line(dataset.note, words.lang) if dataset.note else ""
            texts[words.sentences(text, note) if note else text] = None
    yield from map(Notice, texts)


def unstable_notices(data: RunData, words: Words) -> Iterator[Notice]:
    """A warning at the top of the report where measurements are unstable."""
    for finding in data.findings:
        if isinstance(finding, Unstable) and finding.num_unstable:
            some, measured = finding.num_unstable, finding.num_measured
            yield Notice(words("unstable_notice", some=some, all=measured))


def answer_section(data: RunData, words: Words) -> Section:
    """The answer in a few sentences, one chart that shows it, why it is so, and what is left open."""
    found = answer(data.evidence, data.findings, words)
    blocks: list[Block] = []
    if not data.evidence.study.title:
        blocks.append(Paragraph(_question(data.evidence.study, words)))
    blocks += answer_blocks(found, words)
    if (figure := _figure(data, found, words)) is not None:
        blocks.append(figure)
    parts = (
        ("why", "why_so", why_blocks(found)),
        ("open", "left_open", open_blocks(found, words)),
    )
    sections = (Section(name, words(key), tuple(own)) for name, key, own in parts if own)
    return Section("answer", words("answer"), tuple(blocks), tuple(sections))


def _question(study: Study, words: Words) -> str:
    """What was asked, where the study has no title."""
    if study.script is None:
        return words("no_question", workload=study.workload)
    if study.script.from_inside:
        return words("no_question_inside")
    key = "no_question_varied" if study.cells else "no_question_script"
    return words(key, script=command_text(study.script))


def answer_blocks(answer: Answer, words: Words) -> list[Block]:
    """The sentences of the answer, or that there are none."""
    if not answer.sentences:
        return [Paragraph(words("no_findings"))]
    items = (Statement(one.text, one.section) for one in answer.sentences)
    return [Statements(tuple(items), is_lead=True)]


def why_blocks(answer: Answer) -> list[Block]:
    """The reasons; none where no reason holds."""
    items = tuple(Statement(one.text, one.section) for one in answer.reasons)
    return [Statements(items)] if items else []


def open_blocks(answer: Answer, words: Words) -> list[Block]:
    """What could not be told; none where all was."""
    items = tuple(_open_point(point, words) for point in answer.open_points)
    return [Statements(items)] if items else []


def _open_point(point: OpenPoint, words: Words) -> Statement:
    remark = ""
    if point.minutes is not None and point.command:
        is_short = point.minutes < 1
        minutes = f"{point.minutes:.0f}"
        remark = words("open_less") if is_short else words("open_minutes", minutes=minutes)
    return Statement(point.text, point.section, point.command or "", remark)


def _figure(data: RunData, answer: Answer, words: Words) -> Figure | None:
    """The chart that shows what the first sentence says."""
    first = answer.sentences[0] if answer.sentences else None
    is_about_cost = first is not None and any(isinstance(f, CostRatio) for f in first.findings)
    values = cost_values(data.evidence, "sample_us")
    if is_about_cost and values is not None:
        return cost_figure(values, words)
    for metric in compared_metrics(data.evidence)[:1]:
        if len(data.evidence.cells) > 1:
            return metric_figure(data, metric, words)
        return curve_figure(data, metric, words)
    for mode in ("train", "inference"):
        if data.profiled(mode):
            return operator_figure(data, mode, words)
    return None
