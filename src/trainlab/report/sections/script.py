"""A script that was watched: where its time went, and what it was seen to use."""

from trainlab.analysis.charts import Bars, Part
from trainlab.analysis.document import Block, Figure, Paragraph, Section
from trainlab.analysis.finding import MOST_CELLS, RunData
from trainlab.analysis.scripts import ScriptTimes, script_times
from trainlab.analysis.tables import bullets
from trainlab.report.sections.cost import bar_figure
from trainlab.report.tables.script import seen_table, step_parts_table, time_table
from trainlab.words import Words


def script_section(data: RunData, words: Words) -> Section | None:
    """Where the time of the script goes; None where nothing of that is known."""
    all_times = script_times(data.evidence)
    if not all_times:
        return None
    blocks: list[Block] = [
        Paragraph(words(_intro(data, all_times))),
        script_figure(all_times, words),
    ]
    blocks.append(time_table(all_times, words))
    if (steps := step_parts_table(all_times, words)) is not None:
        blocks.append(steps)
    blocks.append(bullets(data.findings_in("script"), words))
    return Section("script", words("script"), tuple(blocks))


def _intro(data: RunData, all_times: list[ScriptTimes]) -> str:
    """What its time is: of a script or a block, whole or until it stopped."""
    script, is_cut = data.evidence.study.script, any(times.cut for times in all_times)
    if script is not None and script.from_inside:
        return "script_intro_inside_cut" if is_cut else "script_intro_inside"
    return "script_intro_cut" if is_cut else "script_intro"


def seen_section(data: RunData, words: Words) -> Section | None:
    """What the script was seen to use; None where nothing of that is known."""
    all_times = script_times(data.evidence)
    if not all_times:
        return None
    return Section("seen", words("seen_heading"), (seen_table(all_times, words),))


def script_figure(all_times: list[ScriptTimes], words: Words) -> Figure:
    """A bar per setting, made of its parts."""
    return bar_figure(script_bars(all_times), "script", words("script_s"), words, words.phase)


def script_bars(all_times: list[ScriptTimes]) -> Bars:
    """All time of the script by part, in seconds; means over seeds."""
    parts = [
        Part(times.cell, name, spent, spent / (sum(times.parts_s.values()) or 1.0))
        for times in all_times[:MOST_CELLS]
        for name, spent in times.parts_s.items()
    ]
    return Bars("whole", tuple(dict.fromkeys(part.name for part in parts)), tuple(parts))
