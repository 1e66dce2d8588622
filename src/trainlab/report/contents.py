"""Contents: from a run to a document, in the order people read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from trainlab import __version__
from trainlab.analysis.answer import answer_section
from trainlab.analysis.classes import class_section
from trainlab.analysis.cold_start import cold_section
from trainlab.analysis.cost import cost_section
from trainlab.analysis.diagnosis import diagnosis_section
from trainlab.analysis.document import Document, Figure, Section, with_live_links
from trainlab.analysis.factors import comparison_section
from trainlab.analysis.finding import RunData
from trainlab.analysis.learning import learn_section
from trainlab.analysis.method import environment_section, method_section
from trainlab.analysis.network import network_section
from trainlab.analysis.operators import operator_section
from trainlab.analysis.overview import note_section, notices, trouble_section, unstable_notices
from trainlab.analysis.probes import probe_section
from trainlab.analysis.roofline import limits_section
from trainlab.analysis.scaling import parallel_section, scaling_section
from trainlab.analysis.scripts import command_text, script_section, seen_section
from trainlab.analysis.search import search_section
from trainlab.report.repeat import files_section, repeat_section
from trainlab.words import Words

MOST_HIDEABLE = 60
"""Up to so many cells, a reader can hide each; with more, the tables can be filtered instead."""

SECTIONS: tuple[Callable[[RunData, Words], Section | None], ...] = (
    answer_section,
    trouble_section,
    search_section,
    learn_section,
    probe_section,
    script_section,
    cost_section,
    network_section,
    operator_section,
    environment_section,
    # From here on folded.
    comparison_section,
    class_section,
    scaling_section,
    parallel_section,
    limits_section,
    cold_section,
    seen_section,
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
    title = words.builtin(evidence.study.title) or evidence.name
    cells, builders = [cell.id for cell in evidence.cells], list(SECTIONS)
    if evidence.diagnosis is not None:
        title, cells = words("diagnosis_title", script=evidence.diagnosis.script), []
        builders = [diagnosis_section, *(one for one in SECTIONS[1:] if one not in OF_STUDIES)]
    found = (build(data, words) for build in builders)
    return Document(
        title=title,
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
        sections=with_live_links(_once(section for section in found if section is not None)),
        cells=tuple(cells) if 1 < len(cells) <= MOST_HIDEABLE else (),
    )


def _once(sections: Iterable[Section], drawn: set[str] | None = None) -> Iterator[Section]:
    """Every chart where it comes first only."""
    drawn = set() if drawn is None else drawn
    for section in sections:
        blocks = tuple(b for b in section.blocks if not (isinstance(b, Figure) and b.id in drawn))
        drawn |= {block.id for block in blocks if isinstance(block, Figure)}
        yield replace(section, blocks=blocks, sections=tuple(_once(section.sections, drawn)))
