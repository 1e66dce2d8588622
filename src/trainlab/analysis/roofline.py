"""How near a piece of work came to the limits of the machine: the roofline of compute and memory.

Work of F FLOPs and B bytes takes at least F / peak FLOP/s and at least B / peak bytes/s: the larger of
the two is its limit, and the limit whose share is larger is the one it is nearer to. Far below both,
neither explains the time: it may go into pieces too small to reach a limit, launching them, Python, or
work that is not counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainlab.analysis.document import Paragraph, Section
from trainlab.analysis.finding import RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.tables import Field, name, share, table_of, value
from trainlab.errors import RecordError
from trainlab.record.cost_record import LayerRow, LimitsRecord
from trainlab.words import Words

NEAR_SHARE = 0.15
"""Below this share of both limits, neither explains the time."""

Limit = Literal["compute", "memory", "neither"]


@dataclass(frozen=True)
class Roofline:
    """What a piece of work achieved, against the best this machine was measured to do."""

    precision: str
    """Of the matrix products it is compared with: fp32, tf32, bf16, or several as `tf32+fp32`."""
    flops_per_s: float
    bytes_per_s: float
    compute_share: float
    """Of the best matrix product; never clipped. Above 1 the peak was measured too low, or FLOPs are
    counted that the kernels save."""
    memory_share: float
    """Of the best large copy; never clipped. Above 1 caches helped, or the peak was measured too low."""
    near: Limit
    is_peak_low: bool
    """Whether other programs ran while the peaks were measured: perhaps too low."""


def step_roofline(measurement: Measurement) -> Roofline | None:
    """Of the whole bare step, with all work that was counted; None where layers were not watched."""
    record = measurement.layers
    if record is None:
        return None
    rest = [work for work in (record.between, record.optimizer) if work is not None]
    kinds = [*map(_flops_by_kind, record.rows), *(work.flops_by_kind for work in rest)]
    num_bytes = sum(row.forward_bytes + row.backward_bytes for row in record.rows)
    num_bytes += sum(work.num_bytes for work in rest)
    return _of_work(measurement, kinds, num_bytes, measurement.summary.step_ms.value)


def layer_roofline(measurement: Measurement, row: LayerRow, time_ms: float) -> Roofline | None:
    """Of one layer, forward and backward together."""
    num_bytes = row.forward_bytes + row.backward_bytes
    return _of_work(measurement, [_flops_by_kind(row)], num_bytes, time_ms)


def roofline(
    flops: Mapping[str, float], num_bytes: float, time_s: float, limits: LimitsRecord
) -> Roofline:
    """Of work of so many FLOPs, by precision, and bytes (read plus written) done in this time."""
    assert time_s > 0, "work takes time"
    if missing := [name for name in flops if name not in limits.flops_per_s]:
        precisions = ", ".join(limits.flops_per_s)
        raise RecordError(f"limits.json: has no {missing[0]}, only {precisions}; measure again")
    least_s = {name: count / limits.flops_per_s[name] for name, count in flops.items()}
    compute = sum(least_s.values()) / time_s
    memory = num_bytes / time_s / limits.bytes_per_s
    near: Limit = "compute" if compute >= memory else "memory"
    return Roofline(
        precision="+".join(sorted(least_s, key=lambda name: -least_s[name])),
        flops_per_s=sum(flops.values()) / time_s,
        bytes_per_s=num_bytes / time_s,
        compute_share=compute,
        memory_share=memory,
        near=near if max(compute, memory) >= NEAR_SHARE else "neither",
        is_peak_low=limits.busy,
    )


def limiting_precision(
    kind: str, precision: str, tf32: Mapping[str, bool] | None, limits: LimitsRecord
) -> str:
    """The precision of the product that work of a kind is compared with; `tf32` as in `resolved`. torch
    allows TF32, which only a GPU's limits have, for convolutions and for other products apart; recurrent
    layers go with convolutions, both being cuDNN's."""
    if precision == "bf16":
        return "bf16"
    is_on = tf32 is not None and tf32.get("matmul" if kind == "matmul" else "convolution", False)
    return "tf32" if is_on and "tf32" in limits.flops_per_s else "fp32"


def _of_work(
    measurement: Measurement, kinds: Sequence[Mapping[str, int]], num_bytes: int, time_ms: float
) -> Roofline | None:
    limits, trial = measurement.limits, measurement.trial
    if limits is None or time_ms <= 0:
        return None
    precision, tf32 = trial.settings["precision"], trial.resolved.get("tf32")
    flops: Counter[str] = Counter()
    for by_kind in kinds if any(kinds) else [{"matmul": 0}]:
        for kind, count in by_kind.items():
            flops[limiting_precision(kind, precision, tf32, limits)] += count
    return roofline(flops, num_bytes, time_ms / 1e3, limits)


def _flops_by_kind(row: LayerRow) -> Mapping[str, int]:
    """Records before FLOPs were kept by kind tell it by the layer's type."""
    if row.flops_by_kind:
        return row.flops_by_kind
    name = row.type.lower()
    is_recurrent = any(part in name for part in ("lstm", "gru", "rnn"))
    kind = "convolution" if "conv" in name else "recurrent" if is_recurrent else "matmul"
    flops = row.forward_flops + row.backward_flops
    return {kind: flops} if flops else {}


def peak_note(found: Iterable[Roofline | None], words: Words) -> str:
    """Why shares may be too high: caches are no explanation where the peaks themselves are in doubt."""
    known = [one for one in found if one is not None]
    key = "above_memory" if any(one.memory_share > 1 for one in known) else ""
    key = "peaks_low" if any(one.is_peak_low for one in known) else key
    return words(key) if key else ""


def limits_section(data: RunData, words: Words) -> Section | None:
    """How near each step came to what its machine can do; None where no limits were measured."""
    rows: list[tuple[Measurement, Roofline]] = []
    notes = [words("limits_note")]
    for measurement in (one for mode in MODES for one in data.evidence.measured_in(mode)):
        layers, found = measurement.layers, step_roofline(measurement)
        if layers is not None and layers.rows and found is not None:
            rows.append((measurement, found))
    if not rows:
        return None
    if any("+" in one.precision for _, one in rows):
        notes.append(words("limits_kinds"))
    notes.append(peak_note((one for _, one in rows), words))
    fields: list[Field[tuple[Measurement, Roofline]]] = [
        name(words("cell"), lambda row: row[0].trial.cell),
        name(words("mode"), lambda row: words.mode(row[0].summary.mode)),
        name(words("device"), lambda row: row[0].device),
        value(words("sample_us"), lambda row: row[0].summary.sample_us.value),
        value(words("gflop_per_s"), lambda row: row[1].flops_per_s / 1e9),
        value(words("of_best_compute"), lambda row: share(row[1].compute_share)),
        value(words("gb_per_s"), lambda row: row[1].bytes_per_s / 1e9),
        value(words("of_best_memory"), lambda row: share(row[1].memory_share)),
        name(words("near"), lambda row: words(f"near_{row[1].near}")),
    ]
    caption, note = words("limits_table"), words.sentences(*notes)
    table = table_of(
        caption, fields, rows, note, cell=lambda row: row[0].trial.cell, is_sortable=True
    )
    blocks = (Paragraph(words("hardware_intro")), table)
    return Section("hardware", words("hardware"), blocks, is_folded=True)
