"""What the cost trials show: time and memory by factor, scaling with the batch, operators, instability."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analyse.confounds import trial_confounds
from trainlab.analyse.contrast import Contrast, contrasts
from trainlab.analyse.cost.growth import growth
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.operators import ranked
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.stats.cost_ratio import CostComparison, compare_cost, decide_cost, noise_floor
from trainlab.stats.scaling import fit_batches

TEST = "Welch's t on logs over fresh processes, Holm over the family, beyond the A/A noise floor"
MODES = ("train", "inference")


def cost_findings(evidence: Evidence) -> Iterator[Finding]:
    """By mode: time, memory, scaling, operators; then what was unstable."""
    pairs = contrasts(evidence.cells)
    for mode in MODES:
        yield from _times(evidence, mode, pairs)
        yield from _memory(evidence, mode, pairs)
        for series in batch_series(evidence, mode):
            yield from _scaling(series)
            yield from _dominates(series)
            yield from _growth(series)
            yield from _optimizer_share(series)
    yield from _unstable(evidence)


def floor_of(evidence: Evidence, mode: str) -> float | None:
    """What one cell, measured twice, differs by, as a log ratio; None without an A/A pair."""
    cell = evidence.cells[0].id
    first, second = (evidence.measurement(cell, mode, again=again) for again in (False, True))
    if first is None or second is None or len(first.costs) != len(second.costs):
        return None
    return noise_floor(sample_us(first), sample_us(second))


def _times(evidence: Evidence, mode: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    floor = floor_of(evidence, mode)
    known = [(pair, *both) for pair in pairs if (both := _both(evidence, mode, pair))]
    compared = decide_cost(
        [compare_cost(sample_us(a), sample_us(b), floor or 0.0) for _, a, b in known]
    )
    for (pair, first, second), found in zip(known, compared, strict=True):
        yield _time(mode, pair, (first, second), found, floor)


def _time(
    mode: str,
    pair: Contrast,
    both: tuple[Measurement, Measurement],
    found: CostComparison,
    floor: float | None,
) -> Finding:
    first, second = both
    factors = frozenset(pair.factor.split(","))
    confounds = trial_confounds(first.trial, second.trial, factors)
    return Finding(
        kind="cost",
        subject=f"{mode}/sample_us",
        factor=pair.factor,
        levels=pair.levels,
        cells=(pair.reference.id, pair.other.id),
        numbers={
            "ratio": found.ratio.value,
            "sample_us_a": first.summary.sample_us.value,
            "sample_us_b": second.summary.sample_us.value,
            "step_ms_a": first.summary.step_ms.value,
            "step_ms_b": second.summary.step_ms.value,
            "epoch_s_a": first.summary.epoch_s.value,
            "epoch_s_b": second.summary.epoch_s.value,
            "p": found.p_holm,
            "family": found.family,
            "noise_floor": floor,
            "detectable": found.detectable,
            "processes_needed": found.processes_needed,
        },
        n=min(found.n_a, found.n_b),
        interval=found.ratio.interval,
        test=TEST,
        # Without an A/A pair there is no telling noise from a difference.
        verdict=found.verdict if floor is not None else "cannot tell",
        confounds=confounds,
    )


def _memory(evidence: Evidence, mode: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    for pair in pairs:
        both = _both(evidence, mode, pair)
        if both is None or both[0].memory is None or both[1].memory is None:
            continue
        a, b = both[0].memory.peak_bytes, both[1].memory.peak_bytes
        factors = frozenset(pair.factor.split(","))
        confounds = trial_confounds(both[0].trial, both[1].trial, factors)
        yield Finding(
            kind="memory",
            subject=f"{mode}/peak_bytes",
            factor=pair.factor,
            levels=pair.levels,
            cells=(pair.reference.id, pair.other.id),
            numbers={"mib_a": a / 2**20, "mib_b": b / 2**20, "ratio": b / a},
            n=1,
            confounds=confounds,
        )


@dataclass(frozen=True)
class Series:
    """Cells that differ by batch size alone, the smallest first, in one mode."""

    mode: str
    by_size: dict[int, Measurement]

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of their sizes."""
        return tuple(found.trial.cell for found in self.by_size.values())


def batch_series(evidence: Evidence, mode: str) -> list[Series]:
    """Each set of two or more batch sizes with all else equal."""
    groups: dict[str, dict[int, Measurement]] = {}
    for cell in evidence.cells:
        found = evidence.measurement(cell.id, mode)
        if found is not None:
            rest = cell.settings.model_copy(update={"batch_size": 1}).model_dump_json()
            groups.setdefault(rest, {})[found.summary.batch_size] = found
    return [
        Series(mode, dict(sorted(by_size.items())))
        for by_size in groups.values()
        if len(by_size) > 1
    ]


def _scaling(series: Series) -> Iterator[Finding]:
    fit = fit_batches({size: m.summary.step_ms.value for size, m in series.by_size.items()})
    worst = max((abs(one.error) for one in fit.left_out), default=None)
    yield Finding(
        kind="scaling",
        subject=f"{series.mode}/step_ms",
        factor="batch_size",
        cells=series.cells,
        numbers={
            "fixed_ms": fit.fixed.value,
            "per_sample_us": 1e3 * fit.per_sample.value,
            "enough": fit.enough,
            "largest": max(series.by_size),
            "worst_error": worst,
            "fit": fit.verdict,
        },
        n=len(series.by_size),
        interval=fit.fixed.interval,
    )


def _dominates(series: Series) -> Iterator[Finding]:
    """The operator that takes most of the step at the largest batch, and its share at the smallest."""
    records = {size: m.operators for size, m in series.by_size.items() if m.operators is not None}
    if len(records) < 2:
        return
    smallest, largest = min(records), max(records)
    tops = {size: ranked(record) for size, record in records.items()}
    top = tops[largest][0]
    before = next((op.share for op in tops[smallest] if op.name == top.name), 0.0)
    yield Finding(
        kind="dominates",
        subject=top.name,
        factor="batch_size",
        levels=(smallest, largest),
        cells=series.cells,
        numbers={
            "mode": series.mode,
            "share_a": before,
            "share_b": top.share,
            "first_a": tops[smallest][0].name,
            "first_share_a": tops[smallest][0].share,
        },
        n=1,
    )


def _growth(series: Series) -> Iterator[Finding]:
    """The same operator's average call between neighbouring sizes."""
    records = {size: m.operators for size, m in series.by_size.items() if m.operators is not None}
    if len(records) < 2:
        return
    top = ranked(records[max(records)])[0].name
    averages = {
        size: next((op.average_us for op in ranked(record) if op.name == top), 0.0)
        for size, record in records.items()
    }
    for one in growth({top: averages}):
        yield Finding(
            kind="growth",
            subject=top,
            factor="batch_size",
            levels=(one.from_size, one.to_size),
            cells=series.cells,
            numbers={
                "mode": series.mode,
                "time": one.time,
                "work": one.work,
                "average_us_a": averages[one.from_size],
                "average_us_b": averages[one.to_size],
            },
            n=1,
        )


def _optimizer_share(series: Series) -> Iterator[Finding]:
    shares = {
        size: m.summary.phases_ms["optimizer"] / sum(m.summary.phases_ms.values())
        for size, m in series.by_size.items()
        if "optimizer" in m.summary.phases_ms
    }
    if len(shares) < 2:
        return
    smallest, largest = min(shares), max(shares)
    yield Finding(
        kind="optimizer_share",
        subject=f"{series.mode}/optimizer",
        factor="batch_size",
        levels=(smallest, largest),
        cells=series.cells,
        numbers={"share_a": shares[smallest], "share_b": shares[largest]},
        n=min(m.summary.num_processes for m in series.by_size.values()),
    )


def _unstable(evidence: Evidence) -> Iterator[Finding]:
    shaky = [found for found in evidence.measured if found.summary.warnings]
    if shaky:
        first = shaky[0]
        yield Finding(
            kind="unstable",
            subject=f"{first.summary.mode}/step_ms",
            cells=tuple(dict.fromkeys(found.trial.cell for found in shaky)),
            numbers={
                "num_unstable": len(shaky),
                "num_measured": len(evidence.measured),
                "warning": first.summary.warnings[0],
            },
            n=len(shaky),
        )


def _both(evidence: Evidence, mode: str, pair: Contrast) -> tuple[Measurement, Measurement] | None:
    first = evidence.measurement(pair.reference.id, mode)
    second = evidence.measurement(pair.other.id, mode)
    return None if first is None or second is None else (first, second)


def sample_us(found: Measurement) -> list[float]:
    """One figure per process."""
    return [statistics.median(r.step_ms) * 1e3 / r.batch_size for r in found.costs]
