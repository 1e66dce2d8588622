"""How a step grows: with the batch, and with the processes that share it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainlab.analysis.charts import (
    Spec,
    band_and_line,
    chart,
    colour,
    cut_band,
    of_kind,
    quantity,
    tooltip,
)
from trainlab.analysis.document import Block, Entry, Figure, Paragraph, Section
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Kind, RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.metrics import Contrast
from trainlab.analysis.tables import Field, bullets, name, table_of, value
from trainlab.spec import Cell
from trainlab.stats.batch_line import BatchScaling, Fitted, fit_batches, noise_of
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words import Words
from trainlab.words.numbers import figure, percent

FARTHEST_FIT = 2
"""A batch of more than this many times the largest measured is beyond what a fit can tell."""
PROCESSES = "processes"


@dataclass(frozen=True)
class BatchSeries:
    """Measurements in one mode by batch size, the smallest first: cells that differ in nothing else."""

    mode: str
    by_size: dict[int, Measurement]

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of their batch sizes."""
        return tuple(measurement.trial.cell for measurement in self.by_size.values())

    @property
    def times_ms(self) -> dict[int, float]:
        """A step by batch size."""
        return {size: m.summary.step_ms.value for size, m in self.by_size.items()}

    def fit(self) -> BatchScaling:
        """The time of a step by batch size, and the noise between the processes that measured it."""
        return fit_batches(self.times_ms, noise_of(m.process_ms for m in self.by_size.values()))


def batch_series(evidence: Evidence, mode: str) -> list[BatchSeries]:
    """Each set of two or more batch sizes with all else equal."""
    groups: dict[str, dict[int, Measurement]] = {}
    for cell in evidence.cells:
        measurement = evidence.measurement(cell.id, mode)
        if measurement is not None:
            size = measurement.summary.batch_size
            groups.setdefault(_others(cell, size), {})[size] = measurement
    return [
        BatchSeries(mode, dict(sorted(by_size.items())))
        for by_size in groups.values()
        if len(by_size) > 1
    ]


def _others(cell: Cell, size: int) -> str:
    """All settings but the batch size; of a script, but the argument that is that size."""
    arguments = {
        name
        for name, level in cell.settings.script.items()
        if "batch" in name.lower() and type(level) is int and level == size
    }
    return cell.settings.model_dump_json(exclude={"batch_size": True, "script": arguments})


def _scaling_text(one: Finding, words: Words) -> str:
    if one.fit == "does not fit":
        return one.fill(words, "scaling_unfit")
    if one.worst_error is None:
        check = "scaling_unchecked"
    elif one.fit == "fits":
        check = "scaling_checked"
    else:
        check = "scaling_unrepeated" if one.allowed_error is None else "scaling_noisy"
    is_beyond = one.enough_low is not None and one.enough_low > one.largest
    advice = "scaling_beyond" if is_beyond else "scaling_unknown"
    if knows_enough(one):
        advice = "scaling_enough"
    fitted = one.fill(
        words,
        "scaling_fit",
        capital_step=words.capital(words.step(one.mode)),
        check=one.fill(words, check),
        within_per_sample=_within(one.per_sample_us_low, one.per_sample_us_high, words),
    )
    within_enough = _within(one.enough_low, one.enough_high, words)
    return words.sentences(fitted, one.fill(words, advice, within_enough=within_enough))


def _within(low: float | None, high: float | None, words: Words) -> str:
    if low is None or high is None:
        return ""
    return words("within", low=figure(low), high=figure(high))


SCALING = Kind("scaling", "scaling", 9, statement=_scaling_text)
"""How the time of a batch grows with its size. Its interval is that of the fixed part; beyond `enough`
doubling the size saves less than 10% of the time per sample. `worst_error` is that of predicting each size
from the others (None below three), `allowed_error` what noise allows there."""
OPTIMIZER_SHARE = Kind("optimizer_share", "phases", 10)
"""How much of a step the optimizer takes, at the smallest batch and at the largest."""


def knows_enough(scaling: Finding) -> bool:
    """Whether the size where gains end is known and not far beyond those measured."""
    high = scaling.enough_high
    is_near = high is not None and high <= FARTHEST_FIT * scaling.largest
    return is_near and scaling.fit != "does not fit"


def scaling_finding(series: BatchSeries) -> Finding:
    """The line fitted to a series, and how far it can be trusted."""
    fit = series.fit()
    per_sample, enough = fit.per_sample.interval, fit.enough_interval
    worst = max(fit.left_out, key=lambda size: abs(size.error), default=None)
    return SCALING(
        subject=f"{series.mode}/step_ms",
        factor="batch_size",
        cells=series.cells,
        n=len(series.by_size),
        interval=fit.fixed.interval,
        fixed_ms=fit.fixed.value,
        per_sample_us=1e3 * fit.per_sample.value,
        per_sample_us_low=None if per_sample is None else 1e3 * per_sample.low,
        per_sample_us_high=None if per_sample is None else 1e3 * per_sample.high,
        enough=fit.enough,
        enough_low=None if enough is None or math.isinf(enough.low) else enough.low,
        enough_high=None if enough is None or math.isinf(enough.high) else enough.high,
        largest=max(series.by_size),
        worst_error=None if worst is None else abs(worst.error),
        allowed_error=None if worst is None else worst.allowed,
        fit=fit.verdict,
    )


def optimizer_share(series: BatchSeries) -> Iterator[Finding]:
    """At the smallest batch and at the largest, where two or more have the phase."""
    shares = {
        size: m.summary.phases_ms["optimizer"] / sum(m.summary.phases_ms.values())
        for size, m in series.by_size.items()
        if "optimizer" in m.summary.phases_ms
    }
    if len(shares) > 1:
        smallest, largest = min(shares), max(shares)
        yield OPTIMIZER_SHARE(
            subject=f"{series.mode}/optimizer",
            factor="batch_size",
            levels=(smallest, largest),
            cells=series.cells,
            n=min(m.summary.num_processes for m in series.by_size.values()),
            share_a=shares[smallest],
            share_b=shares[largest],
        )


@dataclass(frozen=True)
class ScalingLine:
    """Time per batch by batch size: measured, and the line fitted to it."""

    measured: tuple[tuple[str, int, float], ...]
    """Cell, batch size, milliseconds."""
    fitted: tuple[tuple[int, Fitted], ...]
    """Batch size, milliseconds."""
    label: str
    """The settings the cells share; empty where there is one series."""


def scaling_lines(evidence: Evidence, mode: str) -> tuple[ScalingLine, ...]:
    """One per set of cells that differ by batch size alone."""
    lines, all_series = [], batch_series(evidence, mode)
    for series in all_series:
        times, fit = series.times_ms, series.fit()
        sizes = sorted({round(size) for size in np.geomspace(min(times), max(times), 25)})
        measured = zip(series.cells, times, times.values(), strict=True)
        shared = [part for part in series.cells[0].split(",") if not part.startswith("batch_size=")]
        label = ",".join(shared) if len(all_series) > 1 else ""
        fitted = tuple((size, fit.predict(size)) for size in sizes)
        lines.append(ScalingLine(tuple(measured), fitted, label))
    return tuple(lines)


def scaling_chart(lines: Sequence[ScalingLine], words: Words) -> Spec:
    """Measured times, and the line fitted to them with its band."""
    labels = [line.label or words("fitted") for line in lines]
    times = [time for line in lines for _, _, time in line.measured]
    floor, ceiling = min(times) / 3, max(times) * 3
    rows = [
        row
        for line, label in zip(lines, labels, strict=True)
        for row in _scaling_rows(line, label, floor, ceiling)
    ]
    sizes = sorted({size for line in lines for _, size, _ in line.measured})
    ends = [min(sizes) / 1.2, max(sizes) * 1.2]
    x_scale = {"type": "log", "base": 2, "nice": False, "domain": ends}
    y_scale = {"type": "log", "domain": [floor, ceiling], "nice": False}
    x = quantity("x", words("batch_size"), scale=x_scale, axis={"values": sizes})
    y = quantity("y", words("step_ms"), scale=y_scale)
    own = [("x", words("batch_size"), None), ("y", words("step_ms"), ",.4~r")]
    hue = colour("series", labels, None)
    points = {
        "transform": [of_kind("measured")],
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {
            "x": x,
            "y": y,
            "color": hue,
            "tooltip": tooltip([("cell", words("cell"), None), *own]),
        },
    }
    fitted = band_and_line(rows, x, y, hue, zoomed=["x", "y"], filters=[of_kind("fitted")])
    return chart(rows, [*fitted, points], 260)


def _scaling_rows(line: ScalingLine, label: str, floor: float, ceiling: float) -> Iterator[Spec]:
    for cell, size, time in line.measured:
        yield {"cell": cell, "series": label, "kind": "measured", "x": size, "y": time}
    for size, fit in line.fitted:
        row = {"cell": "", "series": label, "kind": "fitted", "x": size, "y": fit.value}
        if fit.interval is not None:
            row |= cut_band(fit.interval.low, fit.interval.high, floor, ceiling)
        yield row


def scaling_section(data: RunData, words: Words) -> Section | None:
    """How the time of a batch grows with its size; None below two sizes."""
    blocks: list[Block] = [Paragraph(words("scaling_intro"))]
    for mode in MODES:
        if lines := scaling_lines(data.evidence, mode):
            caption = words("scaling_caption", step=words.step(mode))
            values = words.listed(f"{size}: {figure(time)}" for _, size, time in lines[0].measured)
            alt = words("scaling_alt", caption=caption, values=values)
            spec, note = scaling_chart(lines, words), words("scaling_note")
            blocks.append(Figure(f"scaling-{mode}", caption, alt, spec, note))
    if len(blocks) == 1:
        return None
    blocks.append(bullets(data.findings_in("scaling"), words))
    return Section("scaling", words("scaling"), tuple(blocks))


def _efficiency_text(one: Finding, words: Words) -> str:
    """The efficiency with its interval."""
    if one.efficiency_low is None or one.efficiency_high is None:
        return percent(one.efficiency)
    ends = {"low": percent(one.efficiency_low), "high": percent(one.efficiency_high)}
    return percent(one.efficiency) + words("within", **ends)


def _parallel_text(one: Finding, words: Words) -> str:
    return one.fill(words, "parallel_gain", efficiency_text=_efficiency_text(one, words))


PARALLEL = Kind("parallel", "parallel", 8, statement=_parallel_text)
"""How many times as fast the same batch is trained by more processes, with its interval, and the
efficiency: 1 where so many times the processes are so many times as fast."""


def parallel_direction(gain: Finding) -> str:
    """`faster`, `slower` or `unknown`: which way the interval lies of as fast as before."""
    if gain.interval is None or gain.interval.low <= 1 <= gain.interval.high:
        return "unknown"
    return "faster" if gain.interval.low > 1 else "slower"


def efficiency(ratio: float, first: int, second: int) -> float:
    """Of `second` processes beside `first`, whose steps take `ratio` times as long."""
    return first / second / ratio


def parallel_findings(
    mode: str, pairs: Sequence[Contrast], comparisons: Sequence[CostComparison]
) -> Iterator[Finding]:
    """Each number of processes against the smallest, all else equal."""
    numbers = [_number(pair.levels[0]) for pair in pairs if pair.factor == PROCESSES]
    fewest = min(numbers, default=0)
    for pair, comparison in zip(pairs, comparisons, strict=True):
        if pair.factor != PROCESSES or pair.levels[0] != fewest:
            continue
        more, ratio = _number(pair.levels[1]), comparison.ratio
        speedup = None if ratio.interval is None else ratio.interval.inverse
        yield PARALLEL(
            subject=f"{mode}/step_ms",
            factor=PROCESSES,
            levels=pair.levels,
            cells=pair.ids,
            n=comparison.n,
            interval=speedup,
            speedup=1 / ratio.value,
            efficiency=efficiency(ratio.value, fewest, more),
            efficiency_low=None if speedup is None else fewest / more * speedup.low,
            efficiency_high=None if speedup is None else fewest / more * speedup.high,
        )


def _number(level: object) -> int:
    assert isinstance(level, int)
    return level


def parallel_section(data: RunData, words: Words) -> Section | None:
    """Speed-up and efficiency by number of processes; None where that was not varied."""
    found = data.findings_in("parallel")
    if not found:
        return None
    fields: list[Field[Finding]] = [
        name(words("cell"), lambda gain: gain.change_text(words)),
        value(words("speedup"), lambda gain: float(gain.speedup)),
        value(words("efficiency"), lambda one: Entry(_efficiency_text(one, words), one.efficiency)),
    ]
    table = table_of(words("parallel_table"), fields, found, cell=lambda gain: gain.cells[-1])
    blocks = (Paragraph(words("parallel_intro")), table, bullets(found, words))
    return Section("parallel", words("parallel"), blocks)
