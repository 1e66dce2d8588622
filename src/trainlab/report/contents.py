"""Contents: from a run to a document, in the order people read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from trainlab import __version__
from trainlab.analysis.answer import answer_section, notices, unstable_notices
from trainlab.analysis.classes import class_section
from trainlab.analysis.cold_start import cold_section
from trainlab.analysis.cost import phase_section
from trainlab.analysis.diagnosis import diagnosis_section
from trainlab.analysis.document import Block, Document, Figure, Section, with_live_links
from trainlab.analysis.factors import comparison_section
from trainlab.analysis.finding import RunData
from trainlab.analysis.learning import learn_section
from trainlab.analysis.method import environment_section, method_section
from trainlab.analysis.network import network_section
from trainlab.analysis.operators import operator_section
from trainlab.analysis.overview import note_section, trouble_section
from trainlab.analysis.probes import probe_section
from trainlab.analysis.roofline import limits_section
from trainlab.analysis.scaling import parallel_section, scaling_section
from trainlab.analysis.scripts import command_text, script_section, seen_section
from trainlab.report.repeat import files_section, repeat_section
from trainlab.words import Words

MOST_HIDEABLE = 60
"""Up to so many cells, a reader can hide each; with more, the tables can be filtered instead."""

SECTIONS: tuple[Callable[[RunData, Words], Section | None], ...] = (
    answer_section,
    trouble_section,
    environment_section,
    seen_section,
    network_section,
    learn_section,
    class_section,
    script_section,
    operator_section,
    phase_section,
    comparison_section,
    scaling_section,
    parallel_section,
    limits_section,
    probe_section,
    cold_section,
    method_section,
    note_section,
    repeat_section,
    files_section,
)
"""In the order of the report; a section is left out where the study has nothing for it."""


OF_STUDIES = (comparison_section, scaling_section, parallel_section, limits_section, cold_section)
"""Sections that a diagnosis does without: its changes are no settings to choose from."""


def report_of(data: RunData, lang: str = "en") -> Document:
    """The report of one run. SpecError for a language that is not one of ours."""
    words = Words(lang)
    evidence, script = data.evidence, data.evidence.study.script
    cells = [cell.id for cell in evidence.cells] if evidence.diagnosis is None else []
    return Document(
        title=_title(data, words),
        subtitle=words(
            "subtitle" if script is None else "subtitle_script",
            name=evidence.name,
            workload=evidence.study.workload if script is None else command_text(script),
            date=evidence.record.created[:10],
            trials=words.counted("one_trial", "some_trials", len(evidence.trials)),
        ),
        lang=lang,
        made_by=words("made_by", version=__version__),
        notices=(*notices(data, words), *unstable_notices(data, words)),
        sections=with_live_links(
            _once(
                [
                    section
                    for build in _builders(data)
                    if (section := build(data, words)) is not None
                ]
            )
        ),
        cells=tuple(cells) if 1 < len(cells) <= MOST_HIDEABLE else (),
    )


def _title(data: RunData, words: Words) -> str:
    evidence = data.evidence
    if evidence.diagnosis is not None:
        return words("diagnosis_title", script=evidence.diagnosis.script)
    return words.builtin(evidence.study.title) or evidence.name


def _builders(data: RunData) -> Iterator[Callable[[RunData, Words], Section | None]]:
    if data.evidence.diagnosis is None:
        yield from SECTIONS
        return
    for build in SECTIONS:
        if build not in OF_STUDIES:
            yield diagnosis_section if build is answer_section else build


def _once(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Every chart where it comes first only."""
    drawn: set[str] = set()

    def is_new(block: Block) -> bool:
        if not isinstance(block, Figure):
            return True
        is_first = block.id not in drawn
        drawn.add(block.id)
        return is_first

    def cleared(section: Section) -> Section:
        blocks = tuple(block for block in section.blocks if is_new(block))
        return replace(section, blocks=blocks, sections=tuple(map(cleared, section.sections)))

    return tuple(map(cleared, sections))
