"""What is read first: notices, and the question with its answer."""

from collections.abc import Iterator

from trainlab.analyse.findings.cost import Unstable
from trainlab.report.bullets import bullets
from trainlab.report.document import Block, Notice, Paragraph, Section
from trainlab.report.run_data import RunData
from trainlab.report.sections.main_findings import main_findings
from trainlab.words import Words


def notices(data: RunData, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in data.evidence.trials]
    unended = states.count("pending") + states.count("running")
    if unended:
        yield Notice(words("notice_unfinished", some=unended, all=len(states)), "failure")
    if failed := states.count("failed"):
        yield Notice(words("notice_failed", some=failed, all=len(states)), "failure")
    if stopped := states.count("interrupted"):
        yield Notice(words("notice_interrupted", some=stopped, all=len(states)), "failure")
    seen: dict[str, None] = {}
    for trial in data.evidence.trials:
        used = trial.data
        if used is not None and used.is_subset:
            text = words(
                "notice_subset",
                name=used.name,
                train=f"{used.num_train:,}",
                test=f"{used.num_test:,}",
            )
            seen[words.sentences(text, used.note) if used.note else text] = None
    yield from map(Notice, seen)


def unstable_notices(data: RunData, words: Words) -> Iterator[Notice]:
    """Told at the top where a measurement cannot be trusted."""
    for one in data.findings:
        if isinstance(one, Unstable):
            yield Notice(words("unstable_notice", some=one.num_unstable, all=one.num_measured))


def answer_section(data: RunData, words: Words) -> Section:
    """The question, and the main findings in at most five lines."""
    study = data.evidence.study
    blocks: list[Block] = []
    if not study.title:
        blocks.append(Paragraph(words("no_question", workload=study.workload)))
    found = main_findings(data.findings)
    blocks.append(bullets(found, words) if found else Paragraph(words("no_findings")))
    return Section("answer", words("answer"), tuple(blocks))
