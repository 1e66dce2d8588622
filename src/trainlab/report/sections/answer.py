"""What is read first: notices, and the question with its answer."""

from collections.abc import Iterator

from trainlab.report.document import Block, Notice, Paragraph, Section
from trainlab.report.entries import points
from trainlab.report.material import Material
from trainlab.report.sections.main_findings import main_findings
from trainlab.words import Words


def notices(material: Material, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in material.evidence.trials]
    unended = states.count("pending") + states.count("running")
    if unended:
        yield Notice(words("notice_unfinished", some=unended, all=len(states)), "failure")
    if failed := states.count("failed"):
        yield Notice(words("notice_failed", some=failed, all=len(states)), "failure")
    if stopped := states.count("interrupted"):
        yield Notice(words("notice_interrupted", some=stopped, all=len(states)), "failure")
    seen: dict[str, None] = {}
    for trial in material.evidence.trials:
        data = trial.data
        if data is not None and data.is_subset:
            told = words(
                "notice_subset",
                name=data.name,
                train=f"{data.num_train:,}",
                test=f"{data.num_test:,}",
            )
            seen[words.sentences(told, data.note) if data.note else told] = None
    yield from (Notice(told) for told in seen)


def answer_section(material: Material, words: Words) -> Section:
    """The question, and the main findings in at most five lines."""
    study = material.evidence.study
    blocks: list[Block] = []
    if not study.title:
        blocks.append(Paragraph(words("no_question", workload=study.workload)))
    found = main_findings(material.findings)
    blocks.append(points(found, words) if found else Paragraph(words("no_findings")))
    return Section("answer", words("answer"), tuple(blocks))
