"""Figures as values, on hand-worked numbers; then as charts."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from rich_run import ACCURACY, run_data

from fabricate import Fabricated, made_study
from trainlab.analysis.charts import COLOURS, GREY, OTHERS, OUTSIDE, PALE, PALETTE, REST
from trainlab.analysis.cost import phase_bars
from trainlab.analysis.document import Document, Figure
from trainlab.analysis.finding import RunData
from trainlab.analysis.learning import (
    CurvePoint,
    Curves,
    curve_chart,
    exploding,
    metric_curves,
    thinned,
)
from trainlab.analysis.operators import operator_bars
from trainlab.analysis.scaling import batch_series, scaling_chart
from trainlab.report.contents import report_of
from trainlab.report.pictures import picture
from trainlab.words import Words


def test_a_curve_has_a_mean_and_its_interval_at_every_epoch_or_some_steps(rich: RunData) -> None:
    found = metric_curves(rich, "test/accuracy")
    assert found is not None
    assert not found.by_step
    mine = [point for point in found.points if point.cell == "batch_size=16"]
    assert [point.epoch for point in mine] == [1.0, 2.0]
    for point in mine:
        assert point.n == 8
        assert point.mean == pytest.approx(ACCURACY[16] + 0.0018 + 0.0001 * 1.75, abs=2e-4)
        assert point.low is not None
        assert point.high is not None
        assert point.low < point.mean < point.high
    found = metric_curves(rich, "train/loss")
    assert found is not None
    assert found.by_step
    # 100 samples of 960 per epoch, as the made-up records say.
    assert sorted({point.epoch for point in found.points}) == [100 / 960, 200 / 960]
    # Long ones are thinned and keep their end.
    assert thinned([1.0, 2.0, 3.0], 3) == [1.0, 2.0, 3.0]
    kept = thinned([float(n) for n in range(1000)], 100)
    assert (len(kept) <= 100, kept[-1], kept) == (True, 999.0, sorted(kept))


def test_phases_and_operators_add_up_with_the_rest_and_what_lies_outside(rich: RunData) -> None:
    phases = phase_bars(rich.evidence, "train")["batch_size=1"]
    assert phases["forward"] == pytest.approx(sum(phases.values()) / 2)
    mine = operator_bars(rich.evidence, "train")["batch_size=1"]
    assert mine["addmm"] == pytest.approx(30.1)
    assert mine["relu"] == pytest.approx(15.0)
    assert sum(mine.values()) == pytest.approx(100.0)
    assert mine[REST] > 0
    assert mine[OUTSIDE] > 0


def test_the_fitted_line_goes_through_what_was_measured(rich: RunData) -> None:
    chart = scaling_chart(batch_series(rich.evidence, "train"), Words("en"))
    places: dict[str, dict[int, float]] = {"measured": {}, "fitted": {}}
    for row in chart["data"]["values"]:
        places[row["kind"]][row["x"]] = row["y"]
    assert list(places["measured"]) == [1, 16, 64]
    for size, time in places["measured"].items():
        assert places["fitted"][size] == pytest.approx(time, rel=0.01)


def test_names_from_data_are_never_part_of_an_expression_and_words_say_what_is_shown(
    reports: dict[str, Document],
) -> None:
    for figure in (one for report in reports.values() for one in report.figures()):
        assert figure.spec["params"] == [{"name": "hidden", "value": []}]
        filters = [figure.spec["transform"], [la.get("transform") for la in figure.spec["layer"]]]
        assert "batch_size" not in str(filters)
        assert all("cell" in row for row in figure.spec["data"]["values"])
        assert len(figure.alt) > 30
        assert figure.caption


def curve(cell: str, *points: tuple[float, float, float]) -> list[CurvePoint]:
    """Mean and ends of the interval, epoch by epoch."""
    return [CurvePoint(cell, n, mean, *ends, 3) for n, (mean, *ends) in enumerate(points, start=1)]


def drawn(metric: str, *points: CurvePoint) -> dict[str, Any]:
    return curve_chart(Curves(metric, points, by_step=False), ["a", "b"], Words("en"))


def test_a_metric_of_any_name_is_drawn() -> None:
    for metric in ("test/a\\b", "test/two\nlines", "test/\"'`|{x}", "test/$\\alpha$"):
        spec = drawn(metric, *curve("a", (1.0, 0.9, 1.1), (0.5, 0.4, 0.6)))
        assert picture(Figure("x", "caption", "alt", spec)).startswith("<svg")


def axis_of(spec: dict[str, Any]) -> Any:
    return spec["layer"][-1]["encoding"]["y"]["scale"]


def test_an_interval_below_zero_does_not_break_a_logarithmic_axis() -> None:
    spec = drawn("loss", *curve("a", (1000.0, 900.0, 1100.0), (2.0, -400.0, 404.0)))
    axis = axis_of(spec)
    assert axis["type"] == "log"
    assert 0 < axis["domain"][0] <= 2
    assert 1000 <= axis["domain"][1] <= 3000
    ends = [row["band_low"] for row in spec["data"]["values"] if "band_low" in row]
    assert all(low >= axis["domain"][0] for low in ends)


def test_a_band_that_would_hide_the_other_curves_is_left_out_and_told_on_hover() -> None:
    wide = curve("a", (0.5, -3.0, 4.0), (0.4, -3.0, 4.0))
    narrow = curve("b", (1.5, 1.45, 1.55), (1.0, 0.95, 1.05))
    spec = drawn("loss", *wide, *narrow)
    rows = spec["data"]["values"]
    assert {row["cell"] for row in rows if "band_low" in row} == {"b"}
    assert [row["low"] for row in rows if row["cell"] == "a"] == [-3.0, -3.0]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["area", "line", "point", "text"]
    assert {row["cell"]: row["name"] for row in rows if "name" in row} == {"a": "a", "b": "b"}
    alone = drawn("loss", *wide)
    assert [layer["mark"]["type"] for layer in alone["layer"]] == ["line", "point", "text"]
    # It is never a bare line: each seed is drawn.
    seeds = tuple((cell, ((1.0, y), (2.0, y / 2))) for cell in "ab" for y in (0.4, 1.6))
    curves = Curves("loss", (*wide, *narrow), by_step=False, seeds=seeds)
    thin = [
        row
        for row in curve_chart(curves, ["a", "b"], Words("en"))["data"]["values"]
        if "seed" in row
    ]
    assert {(row["cell"], row["seed"]) for row in thin} == {("a", 0), ("a", 1)}
    # No axis of an accuracy goes beyond all right.
    spec = drawn("test/accuracy", *curve("a", (0.9, 0.5, 1.3), (0.97, 0.9, 1.04)))
    assert axis_of(spec)["domain"][1] == 100


def test_names_at_the_ends_of_lines_stand_apart_and_many_lines_have_a_legend() -> None:
    for number in (8, 9):
        cells = [f"c{n}" for n in range(number)]
        points = [CurvePoint(cell, n, 0.5, None, None, 1) for cell in cells for n in (1, 2)]
        spec = curve_chart(
            Curves("test/accuracy", tuple(points), by_step=False), cells, Words("en")
        )
        spots = sorted(row["name_y"] for row in spec["data"]["values"] if "name_y" in row)
        bottom, top = axis_of(spec)["domain"]
        assert all(b - a > 0.06 * (top - bottom) for a, b in pairwise(spots))
        legend = spec["layer"][0]["encoding"]["color"]["legend"]
        assert (len(spots), legend is None) == ((8, True) if number == 8 else (0, False))


def test_a_colour_means_one_thing_and_is_seen_on_both_pages() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    groups = [set(PALETTE), set(OTHERS), set(COLOURS.values()), {GREY, PALE}]
    for colour in set().union(*groups):
        contrasts = [
            max(a, b) / min(a, b)
            for b in (1.05, light("#1a2029") + 0.05)
            for a in [light(colour) + 0.05]
        ]
        assert min(contrasts) > 2.7, colour
    assert COLOURS["gradients"] == COLOURS["backward"]
    assert not any(one & other for one, other in combinations(groups[:3], 2))


def test_ticks_are_at_whole_epochs_where_there_are_several_and_at_each_of_few() -> None:
    def axis_over(epochs: Sequence[float], by_step: bool) -> Any:
        points = tuple(CurvePoint("a", epoch, 1.0, None, None, 1) for epoch in epochs)
        chart = curve_chart(Curves("train/loss", points, by_step), ["a"], Words("en"))
        return chart["layer"][0]["encoding"]["x"]["axis"]

    for last_epoch, least in ((1.0, 0.1), (3.0, 1)):
        assert axis_over((0.5, last_epoch), by_step=True)["tickMinStep"] == least
    for num_epochs in (2, 6):
        epochs = list(range(1, num_epochs + 1))
        axis = axis_over(epochs, by_step=False)
        assert (axis["values"], axis["format"]) == (epochs, "d")


def test_a_setting_that_explodes_does_not_flatten_the_others() -> None:
    wild, tame = ((2.3, 40.0, 9e5), (9e5, 8e5)), ((2.3, 6.0, 2.0), (30.0, 5.0, 0.3))
    for means, is_cut in [(one, True) for one in wild] + [(one, False) for one in tame]:
        lines = {"a": (2.3, 0.9, 0.4), "b": means}
        points = [
            CurvePoint(cell, n, mean, None, None, 1)
            for cell, values in lines.items()
            for n, mean in enumerate(values)
        ]
        curves = Curves("train/loss", points, by_step=True)
        assert [*exploding(curves)] == (["b"] if is_cut else [])
        assert exploding(replace(curves, metric="test/score")) == {}, "only a loss is cut"
        axis = axis_of(curve_chart(curves, ["a", "b"], Words("en")))
        assert (axis["domain"][1] < max(means)) == is_cut
        if is_cut:
            assert 2.3 < axis["domain"][1] < 4
            assert axis.get("type") != "log"


def test_a_cut_axis_is_told_below_the_chart(tmp_path: Path) -> None:
    made = Fabricated(final=lambda trial: {"test/loss": 0.3, "train/loss": 0.3})
    folder = made.write(tmp_path / "run", made_study(vary={"lr": [0.1, 9]}, seeds=2))
    for trial in folder.trials():
        if trial.cell == "lr=9":
            path = folder.trial(trial.id).curve_file
            path.write_text(path.read_text().replace('"test/loss": 0.3', '"test/loss": 3100.0'))
    for lang, told in {
        "en": "so that the other settings can be read: lr=9 rises to 3.1e+03.",
        "zh": "纵轴上部被截去，以便看清其他设置：lr=9 最高达 3.1e+03。",
    }.items():
        notes = {figure.id: figure.note for figure in report_of(run_data(folder), lang).figures()}
        assert notes["trend-test-loss"].endswith(told)
        assert not notes["trend-train-loss"].endswith(told)


def test_memory_bars_are_as_long_as_the_memory_and_a_phase_has_the_same_colour_in_both_modes(
    reports: dict[str, Document],
) -> None:
    figures = {figure.id: figure for figure in reports["en"].figures()}
    encodings = {name: figures[name].spec["layer"][0]["encoding"] for name in figures}
    x = encodings["memory-train"]["x"]
    assert (x["field"], x["title"], x["stack"]) == ("value", "MiB at the peak", "zero")
    assert "domain" not in x.get("scale", {})
    memory = figures["memory-train"].spec["data"]["values"]
    values = {row["cell"]: row["value"] for row in memory}
    assert values == {"batch_size=1": 1.0, "batch_size=16": 16.0, "batch_size=64": 64.0}
    assert "1.00 MiB" in figures["memory-train"].alt
    assert encodings["phases-train"]["x"]["field"] == "share"
    scales = [encodings[f"phases-{mode}"]["color"]["scale"] for mode in ("train", "inference")]
    train, inference = (dict(zip(one["domain"], one["range"], strict=True)) for one in scales)
    assert set(inference) < set(train)
    assert {name: train[name] for name in inference} == inference
