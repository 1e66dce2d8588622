"""Operators ranked, and what is said about them, on records written by hand."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabricate import Fabricated, made_study, operator
from trainlab.analysis.evidence import gather
from trainlab.analysis.finding import Finding
from trainlab.analysis.operators import (
    classic_table,
    operator_findings,
    operator_table,
    outside_us,
    ranked,
)
from trainlab.analysis.scaling import batch_series, scaling_finding
from trainlab.plan import Trial
from trainlab.record.cost_record import OperatorRow, OperatorsRecord
from trainlab.spec import CostSpec
from trainlab.words import Words

EN = Words("en")
Find = Callable[..., dict[str, Finding]]


@pytest.fixture
def found(tmp_path: Path) -> Find:
    """The findings about operators at batch 1 and 16, by kind, whose rows are a function of the size."""
    numbers = itertools.count()

    def find(rows: Callable[[int], list[OperatorRow]]) -> dict[str, Finding]:
        study = made_study(vary={"batch_size": (1, 16)}, learn=False, cost=CostSpec())
        made = Fabricated(rows=lambda trial: rows(trial.settings.batch_size))
        run = made.write(tmp_path / str(next(numbers)), study)
        (series,) = batch_series(gather(run), "train")
        return {one.kind: one for one in operator_findings(series)}

    return find


def row(name: str, self_us: float = 0.0, calls: int = 1, **more: Any) -> OperatorRow:
    return operator(name, self_us, calls).model_copy(update=more)


RECORD = OperatorsRecord(
    mode="train",
    batch_size=8,
    num_steps=2,
    profiled_step_us=100.0,
    calls_are_equal=True,
    rows=[
        row("aten::conv2d", 2.0, 4, total_cpu_us=122.0),
        row("aten::mkldnn_convolution", 120.0, 4, self_cpu_bytes=2048),
        row("aten::add", 30.0, 10),
        row("aten::add", 10.0, 2, phase="backward"),
    ],
)


def test_operators_are_ranked_by_self_time_over_all_phases_per_step_and_per_call() -> None:
    found = ranked(RECORD)
    assert [op.name for op in found] == ["aten::mkldnn_convolution", "aten::add", "aten::conv2d"]
    first, add, _ = found
    assert first.share == pytest.approx(0.6)
    assert (first.self_us, first.average_us) == (60.0, 30.0)
    assert (add.calls, add.calls_per_step, add.self_us) == (12, 6.0, 20.0)
    assert add.average_us == pytest.approx(40 / 12)
    assert outside_us(RECORD) == pytest.approx(100 - 162 / 2)
    assert ranked(RECORD, "total")[0].name == "aten::conv2d"
    assert ranked(RECORD, "calls")[0].name == "aten::add"
    assert ranked(RECORD, "memory")[0].memory_bytes == 1024


def test_the_classic_table_has_its_seven_columns_in_order() -> None:
    head, first, *_, last = classic_table(RECORD).splitlines()
    assert last == "Self CPU time total: 162.000us"
    columns = "Name  Self CPU %  Self CPU  CPU total %  CPU total  CPU time avg  # of Calls"
    assert re.split(r"  +", head.strip()) == columns.split("  ")
    times = ("74.07%", "120.000us", "74.07%", "120.000us", "30.000us", "4")
    assert first.split() == ["aten::mkldnn_convolution", *times]


def test_an_operator_that_comes_first_with_a_tenth_does_not_dominate(found: Find) -> None:
    top = found(lambda size: [row("aten::addmm", 94.0), row("aten::relu", 30.0)])["top_operator"]
    assert "dominates" not in top.sentence(EN)
    assert top.sentence(EN).endswith("the most of any operator at both.")
    top = found(lambda size: [row("aten::addmm", 540.0)])["top_operator"]
    assert top.sentence(EN).endswith("it dominates at both.")


def test_growth_is_that_of_work_on_samples_and_of_all_shapes_together(found: Find) -> None:
    by_kind = found(
        lambda size: [
            row("aten::addcmul_", 500.0, 8, phase="optimizer"),
            row("aten::conv2d", 10.0 * size, 1, shapes=f"{size}x1"),
            row("aten::conv2d", 30.0 * size, 3, shapes=f"{size}x32"),
            row("aten::relu", 31.0 * size, 1, shapes=f"{size}x32"),
        ]
    )
    assert by_kind["top_operator"].subject == "aten::conv2d"
    assert by_kind["top_operator"].first_a == "aten::addcmul_"
    grown = by_kind["operator_growth"]
    assert (grown.subject, grown.time, grown.samples) == ("aten::conv2d", 16.0, 16.0)
    assert (grown.average_us_a, grown.average_us_b) == (10.0, 160.0)


def test_growth_is_of_what_the_model_called_where_inner_calls_differ(found: Find) -> None:
    """At batch 1 the first of two convolutions runs as another operator, as oneDNN has it."""

    def rows(size: int) -> list[OperatorRow]:
        mkldnn = row("aten::mkldnn_convolution", 90.0 * size, 1 if size == 1 else 2)
        slow = [row("aten::_slow_conv2d_forward", 20.0)] if size == 1 else []
        inside = mkldnn.self_cpu_us + sum(one.self_cpu_us for one in slow)
        written = row("aten::conv2d", 1.0, 2, outermost_calls=2, total_cpu_us=inside)
        wrapper = row("aten::convolution", 1.0, 2, total_cpu_us=inside)
        return [mkldnn, *slow, wrapper, written]

    grown = found(rows)["operator_growth"]
    assert grown.subject == "aten::conv2d"
    assert grown.numbers["time"] == pytest.approx(1440 / 110)
    # Nothing is compared where all calls differ.
    by_kind = found(lambda size: [row("aten::addmm", 90.0, size, outermost_calls=size)])
    assert "operator_growth" not in by_kind


def test_a_profile_that_its_phases_contradict_says_so_and_makes_no_finding(tmp_path: Path) -> None:
    """The optimizer takes 0.25 of 1 ms; at batch 16 its operators add up to three times that."""
    study = made_study(vary={"batch_size": (1, 16)}, learn=False, cost=CostSpec())

    def rows(trial: Trial) -> list[OperatorRow]:
        us = 750.0 if trial.settings.batch_size == 16 else 250.0
        inner = [row("aten::detach", 2.0), row("detach", 1.0)]
        return [row("aten::addcmul_", us, 8, phase="optimizer"), *inner]

    made = Fabricated(rows=rows, step_ms=lambda trial, process: 1.0)
    folder = made.write(tmp_path / "run", study)
    for trial in folder.trials():
        home = folder.trial(trial.id)
        if home.operators.exists():
            steps = {"bare_ms": [1.0] * 4, "profiled_ms": [1.0, 1.1, 9.0, 1.2]}
            home.operators.write(home.operators.read().model_copy(update=steps))
    run = gather(folder)
    agrees, apart = (operator_table(one, EN) for one in run.measured_in("train"))
    assert "of optimizer add up to 0.750 ms, while that phase takes 0.250 ms" in apart.note
    assert "add up" not in agrees.note
    assert "1 of 4 profiled steps took far longer" in agrees.note
    assert not [*operator_findings(batch_series(run, "train")[0])]
    # Two operators whose names differ by torch's prefix alone.
    names = [line.entries[0].text for line in agrees.rows]
    assert names == ["addcmul_", "aten::detach", "detach"]


def test_on_a_gpu_shares_are_of_its_kernels(found: Find, tmp_path: Path) -> None:
    rows = [
        row("aten::conv2d", 60.0, self_device_us=125.0, total_device_us=125.0),
        row("aten::add", 140.0, self_device_us=375.0, total_device_us=375.0),
        row("a_kernel", kind="kernel", phase="", self_device_us=30.0),
    ]
    top = found(lambda size: rows)["top_operator"]
    assert "of the GPU's kernel time" in top.sentence(EN)
    assert top.numbers["share_b"] == 0.75
    study = made_study(learn=False, cost=CostSpec())
    run = Fabricated(rows=lambda trial: rows).write(tmp_path / "r", study)
    (measurement,) = gather(run).measured_in("train")
    table = operator_table(measurement, EN)
    shown = [[entry.text for entry in line.entries[:3]] for line in table.rows]
    assert sorted(shown) == [["add", "75.0%", "375.0"], ["conv2d", "25.0%", "125.0"]]
    assert "kernels take 500.0 µs per step" in table.note
    assert "800.0 µs of the 1,000.0 µs" in table.note
    assert "80.0%" not in table.note


def test_growth_is_told_of_undisturbed_processes_alone(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 16)}, learn=False, cost=CostSpec())

    def kinds(name: str, spread: float, profiled_ms: float) -> set[str]:
        made = Fabricated(step_ms=lambda trial, process: 1.0 + spread * process)
        folder = made.write(tmp_path / name, study)
        for home in (folder.trial(one.id) for one in folder.trials()):
            if home.operators.exists():
                steps = {"bare_ms": [1.0], "profiled_ms": [profiled_ms]}
                home.operators.write(home.operators.read().model_copy(update=steps))
        (series,) = batch_series(gather(folder), "train")
        return {one.kind for one in operator_findings(series)}

    assert kinds("calm", 0.0, 1.0) == {"top_operator", "operator_growth"}
    assert kinds("unstable", 0.5, 1.0) == kinds("held-up", 0.0, 9.0) == {"top_operator"}


def test_a_line_that_noise_could_explain_gives_no_advice_and_no_batch_below_one(
    tmp_path: Path,
) -> None:
    """Small batches train in the same time per sample, so the fixed part is at its bound."""
    study = made_study(vary={"batch_size": (1, 4, 16)}, learn=False, cost=CostSpec())

    def told(name: str, spread: float) -> Finding:
        times = {1: 1.0, 4: 4.1, 16: 17.0}
        made = Fabricated(step_ms=lambda t, n: times[t.settings.batch_size] * (1 + spread * n))
        (series,) = batch_series(gather(made.write(tmp_path / name, study)), "train")
        return scaling_finding(series)

    exact, noisy = told("exact", 1e-4), told("noisy", 2.0)
    assert (exact.fixed_ms, exact.enough, exact.enough_low) == (0.0, 1.0, 1.0)
    assert "so small that it cannot be told from 0 ms [95% CI 0 to" in exact.sentence(EN)
    assert "Beyond batch 1" in exact.sentence(EN)
    assert noisy.allowed_error > 1
    assert "cannot be told from these measurements" in noisy.sentence(EN)
    assert "Beyond" not in noisy.sentence(EN)
