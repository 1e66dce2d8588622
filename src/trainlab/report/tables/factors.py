"""What the levels of a factor do, as a table: every comparison with its reference."""

from collections.abc import Sequence
from dataclasses import replace

from trainlab.analysis.cost import CostRatio, MemoryRatio
from trainlab.analysis.document import Entry, Table
from trainlab.analysis.finding import Finding, arrow
from trainlab.analysis.findings.effects import Effect
from trainlab.analysis.tables import (
    EMPTY,
    count,
    mark_label,
    mark_of,
    name,
    number,
    table_of,
    value,
    within,
)
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Verdict
from trainlab.words import WORDS, Words
from trainlab.words.numbers import figure, metric_difference, metric_value


def factor_table(factor: str, findings: Sequence[Finding], words: Words) -> Table:
    """One row per comparison of two cells: an effect, a cost or memory."""
    # Where nothing else varies, or the first column names cells, a cell's name would only repeat it.
    is_alone = all("," not in f.cells[1] or f.levels == (None, None) for f in findings)
    entries = {id(finding): _entries(finding, words) for finding in findings}
    return table_of(
        words.tidy(words("factor_table", factor=factor)),
        [
            name(words("level"), lambda finding: _change(finding, words)),
            *([] if is_alone else [name(words("cell"), lambda finding: finding.cells[1])]),
            name(words("figure"), lambda finding: subject_text(finding.subject, words)),
            value(words("reference"), lambda finding: entries[id(finding)][0]),
            value(words("here"), lambda finding: entries[id(finding)][1]),
            value(words("difference"), lambda finding: entries[id(finding)][2]),
            value(words("interval"), lambda finding: entries[id(finding)][3]),
            value(words("n"), lambda finding: count(finding.n)),
            name(words("verdict"), lambda finding: verdict_entry(finding.verdict, words)),
        ],
        findings,
        words("factor_note"),
        cell=lambda finding: finding.cells[1],
        is_sortable=True,
    )


def verdict_entry(verdict: Verdict | None, words: Words) -> Entry:
    """The verdict in words; empty where nothing was tested."""
    return Entry("" if verdict is None else mark_label(verdict, words), mark=mark_of(verdict))


def subject_text(subject: str, words: Words) -> str:
    """A metric or a cost in words."""
    key = f"subject_{subject.replace('/', '_')}"
    return words(key) if key in WORDS else words.metric(subject)


def difference_within(metric: str, interval: Interval | None, verdict: Verdict | None) -> Entry:
    """The interval of a difference, without its unit."""
    if interval is None:
        return EMPTY
    ends = (interval.low, interval.high)
    widest = max(map(abs, ends))
    text = ", ".join(metric_difference(metric, end, "", widest).strip() for end in ends)
    return at_confidence(Entry(text), verdict)


def at_confidence(interval: Entry, verdict: Verdict | None) -> Entry:
    """The interval; beside "equivalent" it is the 90% one, and says so."""
    if verdict != "equivalent" or not interval.text:
        return interval
    return replace(interval, text=f"{interval.text} (90%)")


def _change(finding: Finding, words: Words) -> str:
    """`1 → 64`, or the cells where several settings change at once."""
    if finding.levels == (None, None):
        return arrow(finding.cells)
    return arrow(map(words.setting, finding.levels))


def _entries(finding: Finding, words: Words) -> tuple[Entry, ...]:
    """The value of the reference and of the other cell, how they differ, and the interval of that."""
    match finding:
        case Effect():
            return _effect(finding, words)
        case CostRatio():
            pair = number(finding.sample_us_a), number(finding.sample_us_b)
        case MemoryRatio():
            pair = number(finding.mib_a), number(finding.mib_b)
        case _:
            return (EMPTY,) * 4
    ratio = Entry(words("times", value=figure(finding.ratio)), finding.ratio)
    return *pair, ratio, at_confidence(within(finding.interval), finding.verdict)


def _effect(effect: Effect, words: Words) -> tuple[Entry, ...]:
    metric, means = effect.subject, (effect.mean_a, effect.mean_b)
    difference = EMPTY
    if effect.difference is not None:
        text = metric_difference(metric, effect.difference, words("points"))
        difference = Entry(text, effect.difference)
    return (
        *(EMPTY if mean is None else Entry(metric_value(metric, mean), mean) for mean in means),
        difference,
        difference_within(metric, effect.interval, effect.verdict),
    )
