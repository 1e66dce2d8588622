"""What probes saw, drawn by depth and over training."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich_run import run_data, section_of

from fabricate import Fabricated, made_study, probe_line, write_probes
from trainlab.analysis.document import Figure, Section, Table
from trainlab.lab.opened import Run
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.report.contents import report_of
from trainlab.report.pictures import picture

NORM = "*:grad_output:norm@10"
Value = Callable[[TrialRecord, int, int], float | None]
"""Of a layer and a period, both from 0; None where it is not finite."""


def probed_run(
    path: Path, layers: Sequence[str], num_periods: int, value: Value, **asked: Any
) -> RunFolder:
    """Of `probe`, else the norm of outputs' gradients."""
    probe = asked.pop("probe", NORM)
    folder = Fabricated().write(path, made_study(**asked))
    for trial in folder.trials():
        home = folder.trial(trial.id)
        lines = [
            probe_line(probe, layer, period + 1, value(trial, place, period))
            for place, layer in enumerate(layers)
            for period in range(num_periods)
        ]
        write_probes(home, lines)
    return folder


def section(folder: RunFolder, lang: str = "en") -> Section:
    return section_of(report_of(run_data(folder), lang), "probes")


def figures(folder: RunFolder, lang: str = "en") -> dict[str, Figure]:
    return {b.id: b for b in section(folder, lang).blocks if isinstance(b, Figure)}


def rows_of(figure: Figure) -> list[dict[str, Any]]:
    return list(figure.spec["data"]["values"])


def y_axis(figure: Figure) -> dict[str, Any]:
    return dict(figure.spec["layer"][-1]["encoding"]["y"]["scale"])


def vanishing(trial: TrialRecord, place: int, period: int) -> float:
    return 10.0 ** (place - 3) * (period + 1) * trial.seed


def test_one_setting_is_drawn_by_depth_first_and_last_and_a_line_per_layer(tmp_path: Path) -> None:
    drawn = figures(probed_run(tmp_path / "r", "abcd", 5, vanishing, seeds=3))
    assert list(drawn) == ["probe-1-depth", "probe-1-time"]
    depth = drawn["probe-1-depth"]
    assert depth.spec["layer"][-1]["encoding"]["x"]["scale"]["domain"] == list("abcd")
    # The mean of seeds 1, 2 and 3 is twice that of seed 1.
    expected = {
        (layer, f"update {10 * period}"): 2 * 10.0 ** (place - 3) * period
        for place, layer in enumerate("abcd")
        for period in (1, 5)
    }
    assert {(r["x"], r["line"]): r["value"] for r in rows_of(depth)} == pytest.approx(expected)
    assert y_axis(depth)["type"] == "log"
    # The interval of three seeds around the mean of 1, 2 and 3.
    (first,) = (r for r in rows_of(depth) if (r["x"], r["line"]) == ("d", "update 10"))
    assert (first["n"], first["high"]) == (3, pytest.approx(2 + 4.3027 / 3**0.5, rel=1e-4))
    over_time = drawn["probe-1-time"]
    assert over_time.spec["layer"][-1]["encoding"]["color"]["scale"]["domain"] == list("abcd")
    mine = [(r["x"], r["y"]) for r in rows_of(over_time) if r["line"] == "d"]
    assert mine == [(10.0 * (n + 1), 2.0 * (n + 1)) for n in range(5)]


def test_one_period_is_drawn_by_depth_and_one_layer_over_training_and_one_value_not_at_all(
    tmp_path: Path,
) -> None:
    assert list(figures(probed_run(tmp_path / "a", "ab", 1, vanishing))) == ["probe-1-depth"]
    one_layer = probed_run(tmp_path / "b", "a", 2, vanishing, vary={"lr": [0.1, 0.2]})
    (chart,) = figures(one_layer).values()
    assert chart.id == "probe-1-time"
    assert chart.spec["layer"][-1]["encoding"]["color"]["field"] == "cell"
    assert {r["cell"] for r in rows_of(chart)} == {"lr=0.1", "lr=0.2"}
    found = section(probed_run(tmp_path / "r", "a", 1, vanishing, vary={"lr": [0.1, 0.2]}))
    (table,) = [block for block in found.blocks if isinstance(block, Table)]
    assert not [block for block in found.blocks if isinstance(block, Figure)]
    texts = [[entry.text for entry in row.entries[:4]] for row in table.rows]
    assert texts == [["a", NORM, "lr=0.1", "0.00200"], ["a", NORM, "lr=0.2", "0.00200"]]


def test_few_settings_are_drawn_by_depth_with_their_first_period_dashed(tmp_path: Path) -> None:
    folder = probed_run(tmp_path / "r", "ab", 4, vanishing, vary={"lr": [0.1, 0.2]})
    depth = figures(folder)["probe-1-depth"]
    line = next(layer for layer in depth.spec["layer"] if layer["mark"]["type"] == "line")
    assert line["encoding"]["strokeDash"]["scale"]["domain"] == ["first", "last"]
    ends = {(cell, step) for cell in ("lr=0.1", "lr=0.2") for step in (10, 40)}
    assert {(r["line"], r["step"]) for r in rows_of(depth)} == ends


def test_of_many_settings_the_first_and_the_most_different_are_drawn_over_training(
    tmp_path: Path,
) -> None:
    rates = [0.1, 0.2, 0.3, 0.4, 0.5]

    def value(trial: TrialRecord, place: int, period: int) -> float | None:
        times = {0.1: 1.0, 0.2: 1.1, 0.3: 500.0, 0.4: 1.2, 0.5: None}[trial.settings["lr"]]  # type: ignore[index]
        return None if times is None and period == 3 else (times or 1.0) * (place + 1)

    folder = probed_run(tmp_path / "r", "ab", 4, value, vary={"lr": rates})
    drawn = figures(folder)
    assert list(drawn) == ["probe-1-depth", "probe-1-time", "probe-1-time-2", "probe-1-time-3"]
    times = [figure for name, figure in drawn.items() if "time" in name]
    assert [{r["cell"] for r in rows_of(f)} for f in times] == [{"lr=0.1"}, {"lr=0.3"}, {"lr=0.5"}]
    assert all(y_axis(figure) == y_axis(times[0]) for figure in times)
    assert "3 of 5 settings" in times[0].note
    # Every setting is in the chart by depth, at the last period that has a value.
    steps = {r["cell"]: r["step"] for r in rows_of(drawn["probe-1-depth"])}
    assert steps == {f"lr={rate}": 30 if rate == 0.5 else 40 for rate in rates}


def test_of_many_layers_twelve_are_lines_and_all_are_in_the_chart_by_depth(tmp_path: Path) -> None:
    layers = [f"layer{n}" for n in range(30)]
    drawn = figures(probed_run(tmp_path / "r", layers, 2, lambda t, place, period: place + 1.0))
    lines = drawn["probe-1-time"].spec["layer"][-1]["encoding"]["color"]["scale"]["domain"]
    assert len(lines) == 12
    assert (lines[0], lines[-1]) == ("layer0", "layer29")
    assert "12 of 30 are drawn" in drawn["probe-1-time"].note
    assert {r["x"] for r in rows_of(drawn["probe-1-depth"])} == set(layers)


def test_zeros_lie_at_the_edge_of_a_logarithmic_axis_and_are_told(tmp_path: Path) -> None:
    values = (0.0, 1e-6, 1.0)
    drawn = figures(probed_run(tmp_path / "r", "abc", 1, lambda t, place, period: values[place]))
    depth = drawn["probe-1-depth"]
    assert y_axis(depth)["type"] == "log"
    (zero,) = [r for r in rows_of(depth) if r["x"] == "a"]
    assert zero["value"] == 0.0
    assert zero["y"] == pytest.approx(y_axis(depth)["domain"][0], rel=1e-5)
    assert "exactly zero" in depth.note


def test_lines_join_parameters_of_the_same_name(tmp_path: Path) -> None:
    names = ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]
    depth = figures(probed_run(tmp_path / "r", names, 1, vanishing, probe="*:grad:norm@10"))
    chart = depth["probe-1-depth"]
    assert chart.spec["layer"][-1]["encoding"]["x"]["scale"]["domain"] == names
    line = next(one for one in chart.spec["layer"] if one["mark"]["type"] == "line")
    assert line["encoding"]["detail"]["field"] == "name"
    assert {r["name"] for r in rows_of(chart)} == {"weight", "bias"}
    assert "defines them" in chart.note


def test_the_charts_of_many_quantities_are_bounded(tmp_path: Path) -> None:
    folder = probed_run(tmp_path / "r", "ab", 2, vanishing, vary={"lr": [0.1, 0.2, 0.3]})
    for trial in folder.trials():
        path = folder.trial(trial.id).probes_file
        text = path.read_text()
        more = ("mean", "std", "min", "max", "sum", "sq_sum", "zero_fraction", "positive_count")
        path.write_text(text + "".join(text.replace("norm", reducer) for reducer in more))
    found = section(folder)
    assert len([block for block in found.blocks if isinstance(block, Figure)]) == 12
    assert any("Further quantities" in getattr(b, "text", "") for b in found.blocks)


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_chart_of_probes_can_be_drawn(lang: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    names = ["<b>fc.weight", "<b>fc.bias", "out.weight", "out.bias"]
    asked: dict[str, Any] = {"probe": "*:grad:norm@10", "seeds": 3, "vary": {"lr": [0.1, 0.2]}}
    for figure in figures(probed_run(tmp_path / "r", names, 3, vanishing, **asked), lang).values():
        assert picture(figure).startswith("<svg")


def test_a_notebook_draws_probes_too_and_plots_them_by_name(tmp_path: Path) -> None:
    folder = probed_run(tmp_path / "r", "ab", 2, vanishing, seeds=2)
    run = Run(folder.path)
    assert {r["line"] for r in run.plot(NORM).rows} == {"a", "b"}
    assert {r["x"] for r in run.plot(NORM, by_depth=True).rows} == {"a", "b"}
    assert "By depth: gradient of the output, norm" in run._repr_html_()
