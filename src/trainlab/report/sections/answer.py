"""What is read first: notices, and the question with its answer."""

from collections.abc import Iterator

from trainlab.analyse.findings.disturbed import Unstable
from trainlab.report.bullets import bullets
from trainlab.report.document import Block, Notice, Paragraph, Section
from trainlab.report.run_data import RunData
from trainlab.report.sections.main_findings import main_findings
from trainlab.words import Words


def notices(data: RunData, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in data.evidence.trials]
    counts = {
        "notice_unfinished": states.count("pending") + states.count("running"),
        "notice_failed": states.count("failed"),
        "notice_interrupted": states.count("interrupted"),
    }
    for key, number in counts.items():
        if number:
            yield Notice(words(key, some=number, all=len(states)), "failure")
    texts: dict[str, None] = {}
    for trial in data.evidence.trials:
        if (dataset := trial.data) is not None and dataset.is_subset:
            train, test = f"{dataset.num_train:,}", f"{dataset.num_test:,}"
            text = words("notice_subset", name=dataset.name, train=train, test=test)
            texts[words.sentences(text, dataset.note) if dataset.note else text] = None
    yield from map(Notice, texts)


def unstable_notices(data: RunData, words: Words) -> Iterator[Notice]:
    """A warning at the top of the report where measurements are unstable."""
    for finding in data.findings:
        if isinstance(finding, Unstable) and finding.num_unstable:
            some, measured = finding.num_unstable, finding.num_measured
            yield Notice(words("unstable_notice", some=some, all=measured))


def answer_section(data: RunData, words: Words) -> Section:
    """The question, and the main findings in at most five lines."""
    study = data.evidence.study
    blocks: list[Block] = []
    if not study.title:
        blocks.append(Paragraph(words("no_question", workload=study.workload)))
    findings = main_findings(data.findings)
    blocks.append(bullets(findings, words) if findings else Paragraph(words("no_findings")))
    return Section("answer", words("answer"), tuple(blocks))
