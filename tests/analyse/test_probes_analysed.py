"""What probes show, on records written by hand: tables, curves and findings."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainlab.analyse.evidence import read_probed
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.probes import growth_exponent, probe_findings
from trainlab.analyse.probes import ProbedTrial, per_element, per_step_norm, probe_curves
from trainlab.analyse.results import histogram_table, probe_table
from trainlab.record.files import LineWriter, write_json
from trainlab.record.folder import RunFolder
from trainlab.record.probe import FiredRecord, HistogramRecord, ProbeRecord, ProbesRecord
from trainlab.record.study import GroupRecord, StudyRecord
from trainlab.record.trial import TrialRecord
from trainlab.spec.probe import probe_of

Values = dict[tuple[str, str], Sequence[float | None]]
"""Probe and layer to the value of each period."""


def records(values: Values) -> list[ProbeRecord]:
    """Each period is 10 steps and 4 elements a step."""
    lines = []
    for (text, layer), series in values.items():
        spec = probe_of(text)
        for index, value in enumerate(series, start=1):
            lines.append(
                ProbeRecord(
                    probe=str(spec),
                    layer=layer,
                    quantity=spec.quantity,
                    reducer=spec.reducer,
                    every=str(spec.every),
                    epoch=index,
                    step=10 * index,
                    num_steps=10,
                    fired=1 if spec.quantity == "weight" else 10,
                    count=4 if spec.quantity == "weight" else 40,
                    value=value,
                    not_finite=None if value is not None else "nan",
                )
            )
    return lines


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., RunFolder]:
    """A run folder whose trials, one per seed, have these values."""

    def make(*seeds: Values, extra: Sequence[ProbeRecord] = (), **settings: Any) -> RunFolder:
        folder = RunFolder(tmp_path / "run")
        folder.trials_folder.mkdir(parents=True)
        names = [f"learn-seed{seed}" for seed in range(1, len(seeds) + 1)]
        study = {"name": "s", "created": "", "trainlab": "", "command": "", "study": {}}
        folder.write_study(
            StudyRecord(**study, groups=(GroupRecord(trials=tuple(names), is_alone=False),))
        )
        for seed, (name, values) in enumerate(zip(names, seeds, strict=True), start=1):
            home = folder.trial(name)
            home.write(
                TrialRecord(
                    id=name, kind="learn", workload="w", seed=seed, settings=settings, state="done"
                )
            )
            lines = LineWriter(home.path / "probes.jsonl")
            for record in [*records(values), *extra]:
                lines.write(record.line())
            lines.close()
            rows = [
                FiredRecord(
                    probe=str(probe_of(text)),
                    layer=layer,
                    type="Linear",
                    kind="module",
                    place=place,
                    fired=10,
                    first_step=1,
                    last_step=10,
                    shapes=[[4]],
                )
                for place, (text, layer) in enumerate(values)
            ]
            write_json(home.path / "probes.json", ProbesRecord(rows=rows).model_dump(mode="json"))
        return folder

    return make


def read_probes(folder: RunFolder) -> list[ProbedTrial]:
    return list(read_probed(folder, folder.trials()))


def found(folder: RunFolder) -> list[Finding]:
    return list(probe_findings(read_probes(folder)))


NORM = "*:grad_output:norm"


def test_the_table_has_a_row_per_value_with_its_trial(run: Callable[..., RunFolder]) -> None:
    table = probe_table(read_probes(run({(NORM, "a"): [1.0, None]}, {(NORM, "a"): [3.0, 4.0]})))
    assert table[["seed", "epoch", "target", "fired"]].values.tolist() == [
        [1, 1, "a", 10],
        [1, 2, "a", 10],
        [2, 1, "a", 10],
        [2, 2, "a", 10],
    ]
    assert table["value"].isna().tolist() == [False, True, False, False]
    assert table["not_finite"].tolist()[1] == "nan"
    assert "cell" in table.columns
    assert "histogram" not in table.columns


def test_a_run_without_probes_gives_empty_tables(run: Callable[..., RunFolder]) -> None:
    trials = read_probes(run())
    assert len(probe_table(trials)) == len(histogram_table(trials)) == 0
    assert list(probe_findings(trials)) == []


def test_histograms_become_a_row_per_bin(run: Callable[..., RunFolder]) -> None:
    histogram = HistogramRecord(log=True, low=0.01, high=1.0, counts=[3, 4], below=1, above=2)
    line = records({("x:grad:histogram", "x"): [None]})[0]
    line = line.model_copy(update={"not_finite": None, "histogram": histogram})
    table = histogram_table(read_probes(run({}, extra=[line])))
    assert table["num_elements"].tolist() == [1, 3, 4, 2]
    assert table["low"].tolist() == pytest.approx([0, 0.01, 0.1, 1])
    assert table["high"].tolist() == pytest.approx([0.01, 0.1, 1, math.inf])


def test_curves_have_the_mean_of_the_seeds_with_its_interval(run: Callable[..., RunFolder]) -> None:
    seeds = [{(NORM, "a"): [5.0, 4.0, low]} for low in (3.0, 3.5, 4.5, None)]
    (curve,) = probe_curves(read_probes(run(*seeds)))
    assert (curve.cell, curve.probe, curve.target) == ("base", f"{NORM}@epoch", "a")
    first, _, last = curve.points
    assert first.mean is not None
    assert (first.mean.value, first.mean.n, first.step) == (5.0, 4, 10)
    assert last.mean is not None
    assert (last.mean.value, last.mean.n) == (pytest.approx(11 / 3), 3)
    assert last.mean.interval is not None
    assert curve.falling() == (2, 4), "one rises, one is not finite"


def test_norms_are_told_per_step_and_per_element() -> None:
    (norm,) = records({("a:grad:norm", "a"): [20.0]})
    (squares,) = records({("a:grad:sq_sum", "a"): [400.0]})
    for line in (norm, squares):
        assert per_step_norm(line) == pytest.approx(20 / math.sqrt(10))
        assert per_element(line) == pytest.approx(20 / math.sqrt(40))


def test_a_gradient_that_vanishes_on_its_way_back_is_found(run: Callable[..., RunFolder]) -> None:
    seeds = [{(NORM, "a"): [1e-5 * k], (NORM, "b"): [0.5], (NORM, "c"): [1.0]} for k in (1, 2, 3)]
    (one,) = found(run(*seeds))
    assert (one.kind, one.subject, one.cells, one.n) == ("vanishing_gradient", "a", ("base",), 3)
    assert one.numbers["compared_with"] == "c"
    assert one.numbers["ratio"] == pytest.approx(1e-5 * 6 ** (1 / 3))
    assert one.interval is not None
    assert one.interval.high < 1e-3


def test_a_gradient_of_exactly_zero_has_vanished_too(run: Callable[..., RunFolder]) -> None:
    (one,) = found(run({(NORM, "a"): [0.0], (NORM, "b"): [1.0]}))
    assert (one.kind, one.numbers["ratio"]) == ("vanishing_gradient", 0.0)


def test_an_interval_that_reaches_the_bound_is_no_finding(run: Callable[..., RunFolder]) -> None:
    seeds = [{(NORM, "a"): [v], (NORM, "b"): [1.0]} for v in (1e-5, 1e-4, 1e-1)]
    assert found(run(*seeds)) == []


def test_gradients_that_grow_or_are_not_finite_are_found(run: Callable[..., RunFolder]) -> None:
    seeds = [{(NORM, "a"): [1.0, 2.0, 200.0 + k, None]} for k in (1, 2)]
    (broken,) = found(run(*seeds))
    assert broken.kind == "broken_gradient"
    assert broken.numbers["num_not_finite"] == 2
    assert broken.numbers["median_step"] == 40


def test_gradients_that_grow_a_hundredfold_are_found(run: Callable[..., RunFolder]) -> None:
    (one,) = found(run(*[{(NORM, "a"): [1.0, 2.0, 200.0 + k]} for k in (1, 2)]))
    assert one.kind == "growing_gradient"
    assert one.numbers["ratio"] == pytest.approx(201.5, rel=1e-3)


def test_without_resets_the_growth_of_the_gradient_is_fitted(run: Callable[..., RunFolder]) -> None:
    series = [{("w:grad:norm@10", "w"): [k * (10 * i) ** 0.5 for i in range(1, 6)]} for k in (1, 2)]
    (one,) = found(run(*series, zero_grad=False))
    assert (one.kind, one.subject, one.n) == ("accumulation", "w", 2)
    assert one.numbers["exponent"] == pytest.approx(0.5)
    assert one.numbers["times"] == pytest.approx(5**0.5)
    assert (one.numbers["first_step"], one.numbers["last_step"]) == (10, 50)


def test_growth_needs_three_points() -> None:
    assert growth_exponent([(1, 1), (2, 4)]) is None
    assert growth_exponent([(1, 1), (2, 4), (4, 16), (8, math.nan)]) == pytest.approx(2)


def test_dead_units_are_found_from_a_tenth_on(run: Callable[..., RunFolder]) -> None:
    probe = "*:activation:dead_fraction"
    seeds = [{(probe, "a"): [0.0, 0.30 + k], (probe, "b"): [0.9, 0.05]} for k in (0.0, 0.01, 0.02)]
    (one,) = found(run(*seeds))
    assert (one.kind, one.subject) == ("dead_units", "a")
    assert (one.numbers["share"], one.numbers["epoch"]) == (pytest.approx(0.31), 2)


@pytest.mark.parametrize(("update", "side"), [(1e-6, "below"), (1e-3, None), (0.5, "above")])
def test_updates_out_of_proportion_are_found(
    update: float, side: str | None, run: Callable[..., RunFolder]
) -> None:
    values = {
        ("*.weight:update:norm", "a.weight"): [update * math.sqrt(10)],
        ("*.weight:weight:norm", "a.weight"): [1.0],
    }
    told = found(run(values))
    assert [one.numbers["side"] for one in told] == ([] if side is None else [side])
    assert all(one.kind == "update_ratio" for one in told)
    assert all(one.numbers["ratio"] == pytest.approx(update) for one in told)
