"""Why it is so: explanations that teach, each given only where the records of this run bear it out."""

from collections.abc import Iterator, Sequence

from trainlab.analysis.answer.sentence import Sentence
from trainlab.analysis.answer.speed import DEVICE, times, whole_percent
from trainlab.analysis.cost import CostRatio, cold_start
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.findings.effects import NoReset
from trainlab.analysis.findings.probes import Accumulation
from trainlab.analysis.names import joined, level_name, sample_word
from trainlab.analysis.operators import device_us
from trainlab.analysis.scaling import BatchSeries, batch_series
from trainlab.words import Words
from trainlab.words.numbers import figure

CHEAPER = 0.8
"""A larger batch must take at most this share of the smaller one's time per sample."""
HARDLY_GROWS = 2.0
"""A phase that takes fewer times as long hardly grows, where the batch is at least twice that."""
FEWEST_TIMES = 4
FIXED_SHARE = 0.2
"""Of the smaller batch's step, that phases which hardly grow must take to explain anything."""
SMALL_PHASE = 0.05
"""Phases below this share of a step are not named."""
FEWEST_COUNTED = 10
SLOW_FIRST = 1.5
LITTLE_GAIN = 1.5
IDLE = 0.5
"""A GPU that computes for less than this share of a step waits for the host."""


def reasons(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """The large batch, the optimizer, the GPU, the resets, the first step."""
    for series in batch_series(evidence, "train")[:1]:
        yield from _why_batches(evidence, series, words)
        yield from _why_optimizer(series, words)
    yield from _why_no_gain(evidence, findings, words)
    yield from _why_resets(findings, words)
    yield from _why_first_step(evidence, words)


def _why_batches(evidence: Evidence, series: BatchSeries, words: Words) -> Iterator[Sentence]:
    small, large = min(series.by_size), max(series.by_size)
    a, b = (series.by_size[size].summary for size in (small, large))
    fixed = _hardly_growing(series)
    share = sum(a.phases_ms[name] for name in fixed) / (sum(a.phases_ms.values()) or 1.0)
    is_cheaper = b.sample_us.value <= CHEAPER * a.sample_us.value
    if not is_cheaper or large < FEWEST_TIMES * small or share < FIXED_SHARE:
        return
    text = words(
        "why_batches",
        small=small,
        large=large,
        longer=times(b.step_ms.value / a.step_ms.value),
        more=times(large / small),
        phases=joined((words.phase(name) for name in fixed), words),
        share=whole_percent(share),
        part=whole_percent(_part_saved(series, fixed)),
        sample=sample_word(evidence, words),
        samples=sample_word(evidence, words, many=True),
    )
    yield Sentence(text, "phases")


def _part_saved(series: BatchSeries, phases: Sequence[str]) -> float:
    """Of the time per sample that the largest batch saves, what these phases save; not above all of it,
    since other phases may take longer."""
    small, large = min(series.by_size), max(series.by_size)
    a, b = (series.by_size[size].summary.phases_ms for size in (small, large))
    saved = {name: a[name] / small - b.get(name, 0.0) / large for name in a}
    return min(1.0, sum(saved[name] for name in phases) / sum(saved.values()))


def _hardly_growing(series: BatchSeries) -> list[str]:
    """The phases of a step that take hardly longer at the largest batch, the longest first."""
    a, b = (
        series.by_size[size].summary.phases_ms
        for size in (min(series.by_size), max(series.by_size))
    )
    least = SMALL_PHASE * sum(a.values())
    fixed = [name for name in a if a[name] >= least and b.get(name, 0) < HARDLY_GROWS * a[name]]
    return sorted(fixed, key=lambda name: -a[name])


def _why_optimizer(series: BatchSeries, words: Words) -> Iterator[Sentence]:
    small, large = min(series.by_size), max(series.by_size)
    if "optimizer" not in _hardly_growing(series):
        return
    a, b = (series.by_size[size].summary.phases_ms["optimizer"] for size in (small, large))
    text = words(
        "why_optimizer",
        first_ms=figure(a),
        second_ms=figure(b),
        small=small,
        large=large,
    )
    yield Sentence(text, "phases")


def _why_no_gain(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """Of the settings where a GPU gains least, if it computes for less than half of a step there."""
    gains = [
        one
        for one in findings
        if isinstance(one, CostRatio) and one.factor == DEVICE and one.mode == "train"
    ]
    for gain in sorted(gains, key=lambda gain: -gain.ratio)[:1]:
        measurement = evidence.measurement(gain.cells[1], "train")
        if gain.ratio < 1 / LITTLE_GAIN or measurement is None or measurement.operators is None:
            continue
        busy = device_us(measurement.operators) / 1e3 / measurement.summary.step_ms.value
        if 0 < busy < IDLE:
            batch = measurement.summary.batch_size
            setting = level_name("batch_size", batch, words)
            text = words("why_no_gain", setting=setting, busy=whole_percent(busy))
            yield Sentence(text, "operators", (gain,))


def _why_resets(findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """Where training without resets is shown to be worse and the gradients are seen to grow."""
    is_worse = any(isinstance(one, NoReset) and one.verdict == "different" for one in findings)
    grown = [one for one in findings if isinstance(one, Accumulation) and one.times > 1]
    if is_worse and grown:
        most = max(grown, key=lambda one: one.times)
        yield Sentence(words("why_resets", times=times(most.times)), "probes", (most,))


def _why_first_step(evidence: Evidence, words: Words) -> Iterator[Sentence]:
    """Where the first step takes longer and more is seen to happen in it."""
    for measurement in evidence.measured_in("train")[:1]:
        cold = cold_start(measurement.costs, measurement.layers)
        if cold is None or (ratio := cold.step_ms.ratio) is None or ratio < SLOW_FIRST:
            continue
        more = [pair for pair in cold.evidence if pair.first > 2 * pair.settled + FEWEST_COUNTED]
        if more:
            counts = joined(
                (words(f"cold_more_{p.name}", number=f"{p.first:,.0f}") for p in more), words
            )
            yield Sentence(
                words(
                    "why_first_step",
                    setting=level_name("batch_size", measurement.summary.batch_size, words),
                    times=times(ratio),
                    ms=figure(cold.step_ms.first),
                    counts=counts,
                ),
                "cold",
            )
