"""What probes show, on records written by hand: tables, curves and findings."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fabricate import Fabricated, made_study, probe_line, write_probes
from trainlab.analysis.evidence import TrialRecords, gather
from trainlab.analysis.finding import Finding
from trainlab.analysis.probes import (
    growth_exponent,
    per_element,
    per_step_norm,
    probe_findings,
)
from trainlab.analysis.results import histogram_table, probe_table
from trainlab.record.learning_record import HistogramRecord, ProbeRecord, ProbesRecord
from trainlab.spec.probe import probe_of
from trainlab.words import Words

Values = dict[tuple[str, str], Sequence[float | None]]
"""Probe and layer to the value of each period."""
Run = Callable[..., Sequence[TrialRecords]]
EN = Words("en")


def records(values: Values, num_steps: int = 10) -> list[ProbeRecord]:
    """Each period ends 10 steps after the one before, and has 4 elements a step."""
    return [
        probe_line(text, layer, period, value, epoch=period, num_steps=num_steps, **size)
        for (text, layer), series in values.items()
        for fired in [1 if probe_of(text).quantity == "weight" else 10]
        for size in [{"fired": fired, "count": 4 * fired}]
        for period, value in enumerate(series, start=1)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """What is read of a run whose trials, one per seed, have these values."""
    number = count()

    def make(
        *seeds: Values,
        extra: Sequence[ProbeRecord] = (),
        num_steps: int = 10,
        fired: Mapping[str, Mapping[str, Any]] = {},
        **settings: Any,
    ) -> Sequence[TrialRecords]:
        """`fired`: what the record says of a layer beyond the usual."""
        study = made_study(seeds=len(seeds), settings=settings)
        folder = Fabricated().write(tmp_path / str(next(number)), study)
        for trial, values in zip(folder.trials(), seeds, strict=True):
            home = folder.trial(trial.id)
            write_probes(home, [*records(values, num_steps), *extra])
            usual = {"type": "ReLU", "kind": "module", "shapes": [[4]]}
            rows = [
                row.model_copy(update={**usual, **fired.get(row.layer, {})})
                for row in home.probes.read().rows
            ]
            home.probes.write(ProbesRecord(rows=rows))
        return gather(folder).probed

    return make


def found(probed: Sequence[TrialRecords]) -> list[Finding]:
    return list(probe_findings(probed))


NORM = "*:grad_output:norm"


def test_the_table_has_a_row_per_value_with_its_trial(run: Run) -> None:
    table = probe_table(run({(NORM, "a"): [1.0, None]}, {(NORM, "a"): [3.0, 4.0]}))
    rows = table[["seed", "epoch", "target", "fired"]].values.tolist()
    assert rows == [[seed, epoch, "a", 10] for seed in (1, 2) for epoch in (1, 2)]
    assert table["value"].isna().tolist() == [False, True, False, False]
    assert table["not_finite"].tolist()[1] == "nan"
    assert "cell" in table.columns
    assert "histogram" not in table.columns
    assert len(probe_table([])) == len(histogram_table([])) == len(found([])) == 0


def test_histograms_become_a_row_per_bin(run: Run) -> None:
    histogram = HistogramRecord(log=True, low=0.01, high=1.0, counts=[3, 4], below=1, above=2)
    line = records({("x:grad:histogram", "x"): [None]})[0]
    line = line.model_copy(update={"not_finite": None, "histogram": histogram})
    table = histogram_table(run({}, extra=[line]))
    assert table["num_elements"].tolist() == [1, 3, 4, 2]
    assert table["low"].tolist() == pytest.approx([0, 0.01, 0.1, 1])
    assert table["high"].tolist() == pytest.approx([0.01, 0.1, 1, math.inf])


def test_norms_are_told_per_step_and_per_element() -> None:
    (norm,) = records({("a:grad:norm", "a"): [20.0]})
    (squares,) = records({("a:grad:sq_sum", "a"): [400.0]})
    for line in (norm, squares):
        assert per_step_norm(line) == pytest.approx(20 / math.sqrt(10))
        assert per_element(line) == pytest.approx(20 / math.sqrt(40))


def test_a_gradient_that_vanishes_on_its_way_back_is_found(run: Run) -> None:
    seeds = [{(NORM, "a"): [1e-5 * k], (NORM, "b"): [0.5], (NORM, "c"): [1.0]} for k in (1, 2, 3)]
    (one,) = found(run(*seeds))
    assert (one.kind, one.subject, one.cells, one.n) == ("vanishing_gradient", "a", ("base",), 3)
    assert one.numbers["compared_with"] == "c"
    assert one.numbers["ratio"] == pytest.approx(1e-5 * 6 ** (1 / 3))
    assert one.interval is not None
    assert one.interval.high < 1e-3
    # An interval that reaches the bound is no finding.
    assert found(run(*[{(NORM, "a"): [v], (NORM, "b"): [1.0]} for v in (1e-5, 1e-4, 1e-1)])) == []


def test_a_gradient_of_exactly_zero_has_vanished_too_and_is_told_apart(run: Run) -> None:
    for values, ratio, num_zero in (
        ((0.0,), 0.0, 0),
        ((0.0, 0.0, 0.0), 0.0, 0),
        ((1e-5, 0.0, 1e-5, 0.0), pytest.approx(1e-5), 2),
    ):
        (one,) = found(run(*[{(NORM, "a"): [value], (NORM, "b"): [1.0]} for value in values]))
        told = (one.kind, one.numbers["ratio"], one.n, one.numbers["num_zero"])
        assert told == ("vanishing_gradient", ratio, len(values) - num_zero, num_zero)
        assert ("In 2 more it is exactly zero" in one.sentence(EN)) == bool(num_zero)


def test_gradients_that_grow_a_hundredfold_or_are_not_finite_are_found(run: Run) -> None:
    (broken,) = found(run(*[{(NORM, "a"): [1.0, 2.0, 200.0 + k, None]} for k in (1, 2)]))
    assert broken.kind == "broken_gradient"
    assert (broken.numbers["num_not_finite"], broken.numbers["median_step"]) == (2, 40)
    assert "first by update 40" in broken.sentence(EN)
    (one,) = found(run(*[{(NORM, "a"): [1.0, 2.0, 200.0 + k]} for k in (1, 2)]))
    assert one.kind == "growing_gradient"
    assert one.numbers["ratio"] == pytest.approx(201.5, rel=1e-3)


WEIGHT = {"type": "parameter", "kind": "parameter", "shapes": [[2, 2]], "owner": "Linear"}
BIAS = {**WEIGHT, "shapes": [[4]]}
GRAD = "*:grad:norm"


def power_law(exponent: float, num_steps: int, num_periods: int = 5) -> list[float]:
    """Norms of periods of a gradient whose norm in each step is that power of the step."""
    periods = [range(1 + i * num_steps, 1 + (i + 1) * num_steps) for i in range(num_periods)]
    return [math.sqrt(sum(step ** (2 * exponent) for step in period)) for period in periods]


def test_without_resets_the_growth_of_the_gradient_is_fitted_whatever_the_period(run: Run) -> None:
    for exponent in (0.5, 1.7, -0.3):
        norms = power_law(exponent, 10)
        series = [{("w:grad:norm@10", "w"): [k * norm for norm in norms]} for k in (1, 2)]
        (one,) = found(run(*series, zero_grad=False, fired={"w": WEIGHT}))
        assert (one.kind, one.subject, one.n) == ("accumulation", "w", 2)
        assert one.numbers["exponent"] == pytest.approx(exponent, abs=1e-6)
        assert one.numbers["times"] == pytest.approx(norms[-1] / norms[0])
        assert (one.numbers["first_step"], one.numbers["last_step"]) == (5.5, 45.5)


def test_growth_needs_three_points_that_are_positive() -> None:
    norms = [math.sqrt(10) * norm for norm in (1.0, 2.0, 4.0)]
    assert growth_exponent(records({("w:grad:norm@10", "w"): norms[:2]})) is None
    assert growth_exponent(records({("w:grad:norm@10", "w"): [*norms[:2], 0.0, None]})) is None
    assert growth_exponent(records({("w:grad:norm@10", "w"): norms})) is not None


def test_what_is_no_weight_that_every_step_reaches_is_not_held_against_others(run: Run) -> None:
    """A bias before batch normalisation has no gradient but rounding; a loss is a single number; of a table
    a step reaches few rows."""
    batch_norm = {"conv.weight": 0.5, "conv.bias": 1e-9, "last.weight": 1.0, "last.bias": 1.0}
    table = {("*:update:norm", "words.weight"): [1e-7], ("*:weight:norm", "words.weight"): [1.0]}
    table |= {(GRAD, "words.weight"): [1e-5], (GRAD, "fc.weight"): [1.0]}
    cases: list[tuple[Values, dict[str, Any]]] = [
        (
            {(GRAD, layer): [value] for layer, value in batch_norm.items()},
            {layer: BIAS if layer.endswith("bias") else WEIGHT for layer in batch_norm},
        ),
        ({(NORM, "fc"): [1e-4], (NORM, "nll_loss"): [1.0]}, {"nll_loss": {"shapes": [[]]}}),
        (table, {"words.weight": {**WEIGHT, "owner": "Embedding"}, "fc.weight": WEIGHT}),
    ]
    for values, fired in cases:
        assert found(run(values, fired=fired)) == [], values


def test_weights_are_compared_with_the_last_weight_and_not_with_a_bias(run: Run) -> None:
    values = {(GRAD, "a.weight"): [1e-5], (GRAD, "b.weight"): [1.0], (GRAD, "b.bias"): [900.0]}
    fired = {"a.weight": WEIGHT, "b.weight": WEIGHT, "b.bias": BIAS}
    (one,) = found(run(values, fired=fired))
    assert (one.subject, one.numbers["compared_with"]) == ("a.weight", "b.weight")
    assert one.numbers["ratio"] == pytest.approx(1e-5)


DEAD = "*:activation:dead_fraction"


def test_dead_units_are_found_from_a_tenth_on(run: Run) -> None:
    seeds = [{(DEAD, "a"): [0.0, 0.30 + k], (DEAD, "b"): [0.9, 0.05]} for k in (0.0, 0.01, 0.02)]
    (one,) = found(run(*seeds))
    assert (one.kind, one.subject) == ("dead_units", "a")
    assert (one.numbers["share"], one.numbers["epoch"]) == (pytest.approx(0.31), 2)
    # Units that are never positive are dead only behind a rectifier.
    for kind in ("Tanh", "Conv1d", "LeakyReLU"):
        assert found(run({(DEAD, "a"): [0.9]}, fired={"a": {"type": kind}})) == []


def test_dead_units_are_told_with_the_period_they_were_counted_in(run: Run) -> None:
    for every, num_steps, period in (
        ("@epoch", 10, "in epoch 2"),
        ("@10", 10, "in updates 11 to 20"),
        ("@step", 1, "in update 20"),
    ):
        (one,) = found(run({(DEAD + every, "a"): [0.0, 0.3]}, num_steps=num_steps))
        assert f"never fired {period} (1 seed)" in one.sentence(EN)


def test_updates_out_of_proportion_are_found(run: Run) -> None:
    table = {**WEIGHT, "owner": "Encoder", "shapes": [[1, 24, 32]]}
    fired = {"a.weight": WEIGHT, "a.bias": BIAS, "positions": table}
    for update, sides in ((1e-6, ["below"]), (1e-3, []), (0.5, ["above"])):
        own = {"a.weight": update * math.sqrt(10), "a.bias": 5.0, "positions": 5.0}
        values = {("*:update:norm", layer): [norm] for layer, norm in own.items()}
        values |= {("*:weight:norm", layer): [1.0] for layer in own}
        told = found(run(values, fired=fired))
        assert [one.kind for one in told] == ["update_ratio"] * len(sides)
        assert all(f"{side} the healthy" in told[0].sentence(EN) for side in sides)
        assert all(one.numbers["ratio"] == pytest.approx(update) for one in told)
