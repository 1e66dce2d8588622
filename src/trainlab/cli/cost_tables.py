"""What was measured about cost, as tables for the terminal."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.analyse.cost.cold_start import ColdStart, cold_start
from trainlab.analyse.cost.efficiency import layer_reach, step_reach
from trainlab.analyse.cost.layers import Layer, between_ms, layer_times
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.operators import Sort, outside_us, ranked
from trainlab.analyse.cost.overhead import ledger
from trainlab.analyse.cost.roofline import Reach
from trainlab.analyse.cost.summary import CostSummary, Estimate
from trainlab.cli.tables import measured, plain_table
from trainlab.record.cost import MemoryRecord, OperatorsRecord
from trainlab.words.numbers import MIB, percent

LONGEST_NAME = 24
"""Of operators and layers, without a break."""
WIDE = 100
"""Columns of a terminal from which on everything fits."""


def print_measurement(
    console: Console, name: str, found: Measurement, *, sort: Sort = "self", top: int = 10
) -> None:
    """The step, its phases, operators, layers, memory, the cold start, and what measuring cost."""
    console.print(step_table(name, found))
    console.print(phase_table(found.summary))
    _print_method(console, found.summary)
    if found.operators is not None and top:
        console.print(operator_table(found.operators, sort, top))
    if found.layers is not None:
        layers = layer_times(found.layers, found.summary.phases_ms)
        console.print(layer_table(found, layers, console.width))
    if found.memory is not None:
        console.print(memory_table(found.memory))
    cold = cold_start(found.costs, found.layers)
    if cold is not None:
        console.print(cold_table(cold))
    console.print(ledger_told(found), highlight=False)


def step_table(name: str, found: Measurement) -> Table:
    """Per batch, per sample and per epoch, each with the interval of repeats."""
    summary, used = found.summary, found.trial.resolved
    steps = "training step" if summary.mode == "train" else "inference step"
    weights = "trained weights" if found.is_trained else "fresh weights"
    where = f"{used['device_name']}, {used['threads']} threads, {weights}"
    title = f"{escape(name)}: {steps} at batch {summary.batch_size} on {where}"
    table = plain_table(title, "cost", "", "95 % of repeats", num_names=0)
    whole = "epoch" if summary.mode == "train" else "pass over the test set"
    for label, value in (
        ("ms per batch", summary.step_ms),
        ("µs per sample", summary.sample_us),
        (f"s per {whole}", summary.epoch_s),
        ("samples per s", summary.samples_per_s),
    ):
        table.add_row(label, measured(value.value), _range(value))
    if (reach := step_reach(found)) is not None:
        share = f"{percent(reach.compute_share)} of this machine's best"
        table.add_row("GFLOP per s", measured(reach.flops_per_s / 1e9), share)
    return table


def phase_table(summary: CostSummary) -> Table:
    """The phases of a step, the longest first."""
    phases = _table("phases of a step", "phase", "ms per batch", "share")
    total = sum(summary.phases_ms.values())
    for name, ms in sorted(summary.phases_ms.items(), key=lambda item: -item[1]):
        phases.add_row(name, f"{ms:.4f}", percent(ms / total))
    return phases


def operator_table(record: OperatorsRecord, sort: Sort, top: int) -> Table:
    """The operators that cost most, and what lies outside all of them."""
    headings = ["share", "self\nµs/step", "total\nµs/step", "average\nµs/call", "calls"]
    table = _table(
        f"top {top} operators by {sort}, from a profiled process (shares, not speeds)",
        "operator",
        *headings,
        "memory\nKiB/step",
    )
    table.caption = None if record.calls_are_equal else "calls differ between steps: averages shown"
    for row in ranked(record, sort)[:top]:
        name = escape(row.name.removeprefix("aten::"))
        table.add_row(
            f"{name} [dim]{escape(row.shapes)}[/dim]" if row.shapes else name,
            percent(row.share),
            f"{row.self_us:,.1f}",
            f"{row.total_us:,.1f}",
            f"{row.average_us:,.1f}",
            f"{row.calls:,}",
            f"{row.memory_bytes / 1024:,.0f}",
        )
    outside = outside_us(record)
    share = percent(outside / record.profiled_step_us)
    table.add_row("outside operators", share, f"{outside:,.1f}", "", "", "", "", style="dim")
    return table


def layer_table(found: Measurement, layers: Sequence[Layer], width: int) -> Table:
    """Each call as the user wrote it: shape, parameters, work, time, and the limit it is near."""
    assert found.layers is not None
    trains, wide = found.summary.mode == "train", width >= WIDE
    table = _table(
        "layers as written, with their share of the bare step",
        "layer",
        "output",
        *(["parameters", "forward\nMFLOP"] if wide else []),
        "forward\nms",
        *(["backward\nms"] if trains else []),
        *(["saved\nMiB"] if trains and wide else []),
        "near",
    )
    table.caption = _uncounted_told(found.layers.uncounted)
    for layer in layers:
        row = layer.row
        again = f" (call {row.call})" if row.call > 1 else ""
        work = [
            f"{row.num_parameters:,}" if row.num_parameters else "",
            f"{row.forward_flops / 1e6:,.2f}" if row.forward_flops else "",
        ]
        table.add_row(
            escape(row.name) + again,
            " ".join("x".join(map(str, shape)) for shape in row.output_shapes),
            *(work if wide else []),
            f"{layer.forward_ms:.4f}",
            *([f"{layer.backward_ms:.4f}"] if trains else []),
            *([f"{row.saved_bytes / MIB:.2f}"] if trains and wide else []),
            _near_told(layer_reach(found, layer)),
        )
    rest = between_ms(layers, found.summary.phases_ms)
    blanks = ["", "", "", ""] if wide else ["", ""]
    after = [""] * (trains + (trains and wide) + 1)
    table.add_row("between layers", *blanks[1:], f"{rest:.4f}", *after, style="dim")
    return table


def memory_table(memory: MemoryRecord) -> Table:
    """Where the memory of a step goes: at its peak, and each kind at its fullest."""
    where = f"{memory.peak_bytes / MIB:.2f} MiB at its peak, in {memory.peak_phase}"
    table = _table(f"memory of a step: {where}", "what", "MiB at peak", "share", "at most")
    parts = {
        "parameters": memory.parameter_bytes,
        "buffers": memory.buffer_bytes,
        "gradients": memory.gradient_bytes,
        "optimizer": memory.optimizer_bytes,
        "input": memory.input_bytes,
        "activations": memory.activation_bytes,
    }
    for name, most in parts.items():
        if most:
            held = memory.at_peak.get(name, 0)
            share = percent(held / memory.peak_bytes)
            table.add_row(name, f"{held / MIB:.2f}", share, f"{most / MIB:.2f}")
    share = percent(memory.other_bytes / memory.peak_bytes)
    table.add_row("results on the way, workspaces", f"{memory.other_bytes / MIB:.2f}", share, "")
    return table


def cold_table(cold: ColdStart) -> Table:
    """The first step of a process beside a settled one."""
    table = _table(
        "cold start: why the first step takes longer (kept apart, in no figure above)",
        "what",
        "first step",
        "settled",
        "times",
    )
    rows = [("step, ms", cold.step_ms)]
    rows += [
        (f"  {pair.name}, ms", pair)
        for pair in cold.phases_ms
        if pair.first > 0.05 * cold.step_ms.first
    ]
    rows += [(f"  {escape(pair.name)} forward, ms", pair) for pair in cold.layers_ms[:2]]
    rows += [(pair.name, pair) for pair in cold.evidence if pair.first]
    for label, pair in rows:
        ratio = "" if pair.ratio is None else f"{pair.ratio:,.1f}"
        table.add_row(label, measured(pair.first), measured(pair.settled), ratio)
    return table


def ledger_told(found: Measurement) -> str:
    """One line: what each instrument added to a step."""
    told = [
        f"{row.instrument} {row.added:+.1%} [{row.low:+.1%}, {row.high:+.1%}]".replace("%", " %")
        for row in ledger(found)
    ]
    return "What watching costs a step (in no time above): " + "; ".join(told) + "."


def _print_method(console: Console, summary: CostSummary) -> None:
    console.print(
        f"{_processes(summary.num_processes)}, {summary.num_warmup_steps} warm-up steps each "
        f"(kept apart; the first took {measured(summary.first_step_ms)} ms), {summary.num_steps:,} "
        f"bare steps; 95 % of steps within {measured(summary.p95_step_ms)} ms.",
        highlight=False,
    )
    for warning in summary.warnings:
        console.print(f"[yellow]unstable: {warning}[/yellow]", soft_wrap=True)


def _table(title: str, *headings: str) -> Table:
    return plain_table(title, *headings, name_width=LONGEST_NAME)


def _range(value: Estimate) -> str:
    return f"{measured(value.low)} to {measured(value.high)}"


def _uncounted_told(uncounted: Sequence[str]) -> str | None:
    if not uncounted:
        return None
    return f"FLOPs of {escape(', '.join(uncounted))} are not known and not counted"


def _near_told(reach: Reach | None) -> str:
    """`compute 45 %`: the nearer limit and how much of it was reached."""
    if reach is None:
        return ""
    if reach.near == "neither":
        return "neither"
    share = reach.compute_share if reach.near == "compute" else reach.memory_share
    return f"{reach.near} {100 * share:.0f} %"


def measurement_told(found: Measurement, sort: Sort, top: int) -> dict[str, Any]:
    """All of it as plain values, for programs."""
    reach = step_reach(found)
    told: dict[str, Any] = {
        "weights": "trained" if found.is_trained else "untrained",
        "settings": found.trial.settings,
        "resolved": found.trial.resolved,
        **asdict(found.summary),
        "ledger": [asdict(row) for row in ledger(found)],
        "limits": None if found.limits is None else found.limits.model_dump(),
        "reach": None if reach is None else asdict(reach),
        "memory": None if found.memory is None else found.memory.model_dump(),
    }
    if found.operators is not None:
        told["operators"] = [asdict(row) for row in ranked(found.operators, sort)[:top]]
        told["outside_operators_us"] = outside_us(found.operators)
    if found.layers is not None:
        told["layers"] = [
            {
                **layer.row.model_dump(exclude={"forward_us", "backward_us"}),
                "forward_ms": layer.forward_ms,
                "backward_ms": layer.backward_ms,
            }
            for layer in layer_times(found.layers, found.summary.phases_ms)
        ]
    cold = cold_start(found.costs, found.layers)
    told["cold_start"] = None if cold is None else asdict(cold)
    return told


def _processes(count: int) -> str:
    return "1 fresh process" if count == 1 else f"{count} fresh processes"
