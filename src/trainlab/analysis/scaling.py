"""How a step grows: with the batch, and with the processes that share it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainlab.analysis import charts
from trainlab.analysis.charts import Spec
from trainlab.analysis.document import Block, Figure, Paragraph, Section
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Kind, RunData, shared_levels
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.metrics import Contrast
from trainlab.analysis.tables import bullets
from trainlab.stats.batch_line import BatchScaling, fit_batches, noise_of
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words import Words
from trainlab.words.numbers import figure, percent

FARTHEST_FIT = 2
"""A batch of more than this many times the largest measured is beyond what a fit can tell."""
PROCESSES = "processes"
NOTABLE_SHARE = 0.2
"""From this share of a step on, the optimizer is worth a sentence of the answer."""


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

    @cached_property
    def fit(self) -> BatchScaling:
        """The time of a step by batch size, and the noise between the processes that measured it."""
        return fit_batches(self.times_ms, noise_of(m.process_ms for m in self.by_size.values()))


def batch_series(evidence: Evidence, mode: str) -> list[BatchSeries]:
    """Each set of two or more batch sizes with all else equal; of a script, all arguments but the one that
    is that size."""
    groups: dict[str, dict[int, Measurement]] = {}
    for cell in evidence.cells:
        if (measurement := evidence.measurement(cell.id, mode)) is not None:
            size, arguments = measurement.summary.batch_size, cell.settings.script.items()
            own = {name for name, level in arguments if "batch" in name.lower() and level == size}
            others = cell.settings.model_dump_json(exclude={"batch_size": True, "script": own})
            groups.setdefault(others, {})[size] = measurement
    return [BatchSeries(mode, dict(sorted(one.items()))) for one in groups.values() if len(one) > 1]


def knows_enough(scaling: Finding) -> bool:
    """Whether the size where gains end is known and not far beyond those measured."""
    return bool((scaling.enough_high or math.inf) <= FARTHEST_FIT * scaling.largest)


def _scaling_text(one: Finding, words: Words) -> str:
    if one.fit == "does not fit":
        return one.fill(words, "scaling_unfit")
    if one.worst_error is None:
        check = "scaling_unchecked"
    elif one.fit == "fits":
        check = "scaling_checked"
    else:
        check = "scaling_unrepeated" if one.allowed_error is None else "scaling_noisy"
    advice = "scaling_beyond" if (one.enough_low or 0.0) > one.largest else "scaling_unknown"
    advice = "scaling_enough" if knows_enough(one) else advice
    within = {}
    # A batch is whole: the same rounding for it and for its ends keeps it between them.
    for part, shown in (("per_sample_us", figure), ("enough", "{:,.0f}".format)):
        low, high = (getattr(one, f"{part}_{end}") for end in ("low", "high"))
        is_known = low is not None and high is not None
        text = words("within", low=shown(low), high=shown(high)) if is_known else ""
        within[f"within_{part.removesuffix('_us')}"] = text
    fitted = "scaling_fit" if one.fixed_ms else "scaling_unfixed"
    return words.sentences(
        one.fill(words, fitted, check=one.fill(words, check), **within),
        one.fill(words, advice, **within),
    )


SCALING = Kind(
    "scaling",
    "scaling",
    9,
    statement=_scaling_text,
    brief=lambda one: "answer_enough" if one.mode == "train" and knows_enough(one) else None,
)
"""How the time of a batch grows with its size. Its interval is that of the fixed part; beyond `enough`
doubling the size saves less than 10% of the time per sample. `worst_error` is that of predicting each size
from the others (None below three), `allowed_error` what noise allows there."""
OPTIMIZER_SHARE = Kind(
    "optimizer_share",
    "phases",
    10,
    brief=lambda one: "answer_optimizer" if one.share_a >= NOTABLE_SHARE else None,
)
"""How much of a step the optimizer takes, at the smallest batch and at the largest."""


def scaling_finding(series: BatchSeries) -> Finding:
    """The line fitted to a series, and how far it can be trusted."""
    fit = series.fit
    # Of a line that does not fit, the size that shows it most clearly; else the one farthest off.
    is_unfit = fit.verdict == "does not fit"
    worst = max(
        fit.left_out,
        key=lambda size: abs(size.error) / ((is_unfit and size.allowed) or 1.0),
        default=None,
    )
    # Two sizes cannot be checked; where noise explains errors as large as a time, a line fits by luck.
    is_sound = worst is None or (fit.verdict == "fits" and (worst.allowed or 0.0) <= 1)
    ends: dict[str, float | None] = {}
    for part, unit, least, interval in (
        ("per_sample_us", 1e3, 0.0, fit.per_sample.interval),
        ("enough", 1.0, 1.0, fit.enough_interval if is_sound else None),
    ):
        for end in ("low", "high"):
            known = math.inf if interval is None else max(least, getattr(interval, end))
            ends[f"{part}_{end}"] = unit * known if math.isfinite(known) else None
    return SCALING(
        subject=f"{series.mode}/step_ms",
        factor="batch_size",
        cells=series.cells,
        n=len(series.by_size),
        interval=fit.fixed.interval,
        fixed_ms=fit.fixed.value,
        per_sample_us=1e3 * fit.per_sample.value,
        enough=fit.enough if fit.enough is None else max(1.0, fit.enough),
        **ends,
        largest=max(series.by_size),
        worst_error=worst and abs(worst.error),
        allowed_error=worst and worst.allowed,
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


def scaling_chart(all_series: Sequence[BatchSeries], words: Words) -> Spec:
    """Measured times of each set of cells that differ by batch size alone, and the line fitted to them with
    its band."""
    times = [time for series in all_series for time in series.times_ms.values()]
    floor, ceiling = min(times) / 3, max(times) * 3
    rows: list[Spec] = []
    labels = []
    for series in all_series:
        # The settings that the cells share.
        shared = shared_levels(series.cells)
        label = (",".join(shared) if len(all_series) > 1 else "") or words("fitted")
        labels.append(label)
        for cell, (size, time) in zip(series.cells, series.times_ms.items(), strict=True):
            rows.append({"cell": cell, "series": label, "kind": "measured", "x": size, "y": time})
        places = np.geomspace(min(series.by_size), max(series.by_size), 25)
        for size in sorted({round(place) for place in places}):
            fitted = series.fit.predict(size)
            row = {"cell": "", "series": label, "kind": "fitted", "x": size, "y": fitted.value}
            if (band := fitted.interval) is not None:
                row |= charts.cut_band(band.low, band.high, floor, ceiling)
            rows.append(row)
    sizes = sorted({size for series in all_series for size in series.by_size})
    ends = [min(sizes) / 1.2, max(sizes) * 1.2]
    x_scale = {"type": "log", "base": 2, "nice": False, "domain": ends}
    y_scale = {"type": "log", "domain": [floor, ceiling], "nice": False}
    x, y = (
        charts.quantity(name, charts.axis_title(words(title), scale, words), scale=scale, axis=axis)
        for name, title, scale, axis in (
            ("x", "batch_size", x_scale, {"values": sizes}),
            ("y", "step_ms", y_scale, {}),
        )
    )
    hue = charts.colour("series", labels, None, charts.OTHERS)
    hover: charts.Hover = [("cell", words("cell"), None), ("x", words("batch_size"), None)]
    hover += [("y", words("step_ms"), ",.4~r")]
    told = {"x": x, "y": y, "color": hue, "tooltip": charts.tooltip(hover)}
    points = charts.dots(told, charts.of_kind("measured"), size=90)
    lines = charts.band_and_line(
        rows, x, y, hue, zoomed=["x", "y"], filters=[charts.of_kind("fitted")]
    )
    return charts.chart(rows, [*lines, points], 260)


def scaling_section(data: RunData, words: Words) -> Section | None:
    """How the time of a batch grows with its size; None below two sizes."""
    blocks: list[Block] = [Paragraph(words("scaling_intro"))]
    for mode in MODES:
        if all_series := batch_series(data.evidence, mode):
            caption = words("scaling_caption", step=words.step(mode))
            times = all_series[0].times_ms.items()
            values = words.listed(f"{size}: {figure(time)}" for size, time in times)
            alt = words("scaling_alt", caption=caption, values=values)
            spec, note = scaling_chart(all_series, words), words("scaling_note")
            blocks.append(Figure(f"scaling-{mode}", caption, alt, spec, note))
    if len(blocks) == 1:
        return None
    blocks.append(bullets(data.findings_in("scaling"), words))
    return Section("scaling", words("scaling"), tuple(blocks), is_folded=True)


def _parallel_brief(one: Finding) -> str | None:
    """Where it is known well enough to be told: by which way the interval lies of as fast as before."""
    if one.interval is None:
        return None
    beside = "faster" if one.speedup > 1 else "slower"
    return f"answer_parallel_{'unknown' if one.interval.contains(1) else beside}"


def _parallel_phrases(one: Finding, words: Words) -> dict[str, object]:
    efficiency = percent(one.efficiency)
    if one.efficiency_low is not None and one.efficiency_high is not None:
        ends = {"low": percent(one.efficiency_low), "high": percent(one.efficiency_high)}
        efficiency += words("within", **ends)
    return {"efficiency_text": efficiency, "times": one.speedup}


PARALLEL = Kind(
    "parallel",
    "parallel",
    8,
    text="parallel_gain",
    phrases=_parallel_phrases,
    brief=_parallel_brief,
)
"""How many times as fast the same batch is trained by more processes, with its interval, and the
efficiency: 1 where so many times the processes are so many times as fast."""


def parallel_findings(
    mode: str, pairs: Sequence[Contrast], comparisons: Sequence[CostComparison]
) -> Iterator[Finding]:
    """Each number of processes against the smallest, all else equal."""
    varied = [
        (pair, comparison.n, comparison.ratio, *pair.levels)
        for pair, comparison in zip(pairs, comparisons, strict=True)
        if pair.factor == PROCESSES
    ]
    fewest = min((int(first or 1) for *_, first, _ in varied), default=1)
    for pair, n, ratio, first, second in varied:
        if first == fewest:
            speedup, more = ratio.interval and ratio.interval.inverse, int(second or 1)
            yield PARALLEL(
                subject=f"{mode}/step_ms",
                **pair.shared,
                n=n,
                interval=speedup,
                speedup=1 / ratio.value,
                efficiency=fewest / more / ratio.value,
                efficiency_low=speedup and fewest / more * speedup.low,
                efficiency_high=speedup and fewest / more * speedup.high,
            )


def parallel_section(data: RunData, words: Words) -> Section | None:
    """Speed-up and efficiency by number of processes; None where that was not varied."""
    found = data.findings_in("parallel")
    if not found:
        return None
    blocks = (Paragraph(words("parallel_intro")), bullets(found, words))
    return Section("parallel", words("parallel"), blocks, is_folded=True)
