"""What further processes gain that train one trial together."""

from trainlab.analysis.document import Entry, Paragraph, Section, Table
from trainlab.analysis.finding import RunData
from trainlab.analysis.scaling import ParallelGain
from trainlab.analysis.tables import bullets, name, number, table_of, value
from trainlab.words import Words


def parallel_section(data: RunData, words: Words) -> Section | None:
    """Speed-up and efficiency by number of processes; None where that was not varied."""
    found = [one for one in data.findings_in("parallel") if isinstance(one, ParallelGain)]
    if not found:
        return None
    blocks = (Paragraph(words("parallel_intro")), _table(found, words), bullets(found, words))
    return Section("parallel", words("parallel"), blocks)


def _table(found: list[ParallelGain], words: Words) -> Table:
    def speedup(gain: ParallelGain) -> Entry:
        return number(gain.speedup)

    def efficiency(gain: ParallelGain) -> Entry:
        return Entry(gain.efficiency_text(words), gain.efficiency)

    return table_of(
        words("parallel_table"),
        [
            name(words("cell"), lambda gain: gain.change_text(words)),
            value(words("speedup"), speedup),
            value(words("efficiency"), efficiency),
        ],
        found,
        cell=lambda gain: gain.cells[-1],
    )
