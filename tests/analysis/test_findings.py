"""Findings from made-up records: planted differences are found, planted confounds named."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from analysed import EN, ends, evidence, of_kind

from fabricate import DATA, Fabricated, made_study
from trainlab.analysis.cost import cost_table
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.overview import findings
from trainlab.plan import Trial
from trainlab.spec import CostSpec
from trainlab.stats.means import mean_of

NOISE = (0.0, 0.7, -0.4, 0.3, -0.8, 0.5, -0.2, 0.9, -0.6, 0.1)
"""By seed or process: fixed, so that every run of the tests sees the same."""


def shifted(cell: str, by: float, spread: float) -> Any:
    """Accuracies that vary with the seed, and are higher by so much in one cell."""

    def final(trial: Trial) -> dict[str, float]:
        own = NOISE[(trial.seed + len(trial.cell)) % 10] * spread
        return {"test/accuracy": 0.9 + own + (by if trial.cell == cell else 0.0)}

    return final


LR = made_study(vary={"lr": (0.1, 0.01)}, seeds=8)


def test_a_planted_difference_is_found_with_its_size(tmp_path: Path) -> None:
    found = evidence(tmp_path, LR, final=shifted("lr=0.01", 0.05, 0.002))
    (effect,) = of_kind("effect", found)
    assert (effect.verdict, effect.cells) == ("different", ("lr=0.1", "lr=0.01"))
    assert (effect.levels, effect.n) == ((0.1, 0.01), 8)
    assert effect.numbers["difference"] == pytest.approx(0.05, abs=0.003)
    assert effect.interval is not None
    assert effect.interval.contains(0.05)
    assert of_kind("undecided", found) == []
    # Three seeds show as much, one never shows any difference.
    for seeds, verdict in ((3, "different"), (1, "cannot tell")):
        study = LR.model_copy(update={"seeds": tuple(range(1, 1 + seeds))})
        found = evidence(tmp_path / str(seeds), study, final=shifted("lr=0.01", 0.05, 0.002))
        assert [one.verdict for one in of_kind("effect", found)] == [verdict]
        told = [one.numbers for one in of_kind("undecided", found)]
        counts = [(one["num_open"], one["num_tested"], one["most_seeds"]) for one in told]
        assert counts == ([(1, 1, 1)] if seeds == 1 else [])
    study = LR.model_copy(update={"margins": {"test/accuracy": 0.01}})
    (effect,) = of_kind("effect", evidence(tmp_path / "m", study, final=shifted("", 0.0, 0.001)))
    assert (effect.verdict, effect.numbers["margin"]) == ("equivalent", 0.01)


def test_training_without_resets_is_a_finding_of_its_own(tmp_path: Path) -> None:
    study = made_study(design="one-at-a-time", vary={"zero_grad": (False,), "lr": (0.1,)})
    kinds = {(one.kind, one.factor) for one in findings(evidence(tmp_path, study)) if one.factor}
    assert kinds == {("no_reset", "zero_grad"), ("effect", "lr")}


def test_threads_and_data_that_differ_between_two_cells_are_named(tmp_path: Path) -> None:
    """Whichever seed it is."""
    study, other = made_study(vary={"lr": (0.1, 0.01)}), DATA.model_copy(update={"num_train": 96})
    found = evidence(
        tmp_path,
        study,
        resolved=lambda t: {"threads": 2} if (t.cell, t.seed) == ("lr=0.01", 3) else {},
        data=lambda t: other if (t.cell, t.seed) == ("lr=0.01", 1) else DATA,
    )
    named = {"threads: 1 against 2", "data.num_train: 960 against 96"}
    assert all({*map(str, one.confounds)} == named for one in of_kind("effect", found))


def test_a_failed_trial_makes_no_confounds_up(tmp_path: Path) -> None:
    folder = evidence(tmp_path, LR, **ends("lr=0.01", "failed", after=7)).folder
    home = folder.trial("learn-lr=0.01-seed8")
    home.write(home.read().model_copy(update={"resolved": {}, "data": None, "final": {}}))
    assert {one.confounds for one in of_kind("effect", gather(folder))} == {()}


def test_a_trial_that_did_not_end_well_never_counts_as_a_value(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=4)
    for state in ("diverged", "failed", "interrupted", "running", "pending"):
        found = evidence(
            tmp_path / state,
            study,
            state=lambda t, s=state: s if (t.cell, t.seed) == ("lr=0.01", 2) else "done",
            final=lambda t: {"test/accuracy": 0.0 if (t.cell, t.seed) == ("lr=0.01", 2) else 0.9},
        )
        (effect,) = of_kind("effect", found)
        assert (effect.n, effect.numbers["mean_b"]) == (3, 0.9)
        assert math.isnan(found.values("lr=0.01", "test/accuracy").get(2, math.nan))
        assert len(of_kind("diverged", found)) == (state == "diverged")
        numbers = [one.numbers for one in of_kind("unfinished", found)]
        counts = [(one["num_done"], one["num_planned"], one[f"num_{state}"]) for one in numbers]
        assert counts == ([] if state == "diverged" else [(7, 8, 1)])


def test_a_failed_seed_is_not_counted_as_diverged(tmp_path: Path) -> None:
    states = {1: "failed", 2: "diverged", 3: "interrupted"}
    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=5)
    state = {"state": lambda t: states.get(t.seed, "done") if t.cell == "lr=0.01" else "done"}
    found = evidence(tmp_path, study, **state)
    effect = of_kind("effect", found)[0]
    counts = [effect.numbers[name] for name in ("num_diverged", "num_dropped")]
    assert (effect.n, counts) == (2, [1, 2])
    mean = mean_of(list(found.values("lr=0.01", "test/accuracy").values()))
    assert mean is not None
    assert (mean.n, mean.num_diverged) == (2, 1)


def test_an_error_is_reached_from_above_unless_the_target_says_otherwise(tmp_path: Path) -> None:
    for asked, num_reached in ((2.0, 2), ("<= 2", 2), (">= 2", 3), (">= 4", 1)):
        study = made_study(seeds=4, targets={"test/mae": asked})
        found = evidence(tmp_path / str(asked), study, final=lambda t: {"test/mae": float(t.seed)})
        (quality,) = of_kind("time_to_target", found)
        assert quality.numbers["num_reached"] == num_reached, asked


def test_cells_of_which_no_seed_ended_well_cannot_be_compared(tmp_path: Path) -> None:
    found = evidence(tmp_path, LR, **ends("lr=0.01", "diverged"))
    assert {(one.n, one.verdict) for one in of_kind("effect", found)} == {(0, "cannot tell")}
    (gone,) = of_kind("diverged", found)
    assert (gone.cells, gone.n) == (("lr=0.01",), 8)
    assert gone.numbers == {"num_diverged": 8, "median_step": 7}


def slower(by: float, spread: float, floor: float) -> Any:
    """Steps of processes: `lr=0.01` slower by a share, the A/A pair apart by a share."""

    def step_ms(trial: Trial, process: int) -> float:
        own = 1 + spread * NOISE[(process + len(trial.cell) + 3 * trial.again) % 10]
        return own * (1 + by * (trial.cell == "lr=0.01")) * (1 + floor * trial.again)

    return step_ms


def costs(path: Path, step_ms: Any, study: dict[str, Any] | None = None, **told: Any) -> Evidence:
    asked = {"learn": False, "cost": CostSpec(processes=3), **(study or {})}
    return evidence(path, made_study(vary={"lr": (0.1, 0.01)}, **asked), step_ms=step_ms, **told)


def test_a_slowdown_of_5_per_cent_is_found_when_the_noise_allows(tmp_path: Path) -> None:
    (cost,) = of_kind("cost", costs(tmp_path, slower(0.05, 0.002, 0.0)))
    assert cost.verdict == "different"
    assert cost.numbers["ratio"] == pytest.approx(1.05, abs=0.003)
    assert cost.numbers["epoch_s_a"] == pytest.approx(0.015, rel=0.01)
    # The same of trained weights alone.
    trained = {"learn": True, "cost": CostSpec(processes=3, weights="trained")}
    (cost,) = of_kind("cost", costs(tmp_path / "t", slower(0.05, 0.002, 0.0), trained))
    assert cost.verdict == "different"


def test_it_cannot_be_told_when_a_cell_twice_or_processes_differ_as_much(tmp_path: Path) -> None:
    """1.06 is told as such, a factor not as a difference of logarithms."""
    (cost,) = of_kind("cost", costs(tmp_path / "a", slower(0.05, 0.002, 0.06)))
    assert (cost.verdict, cost.numbers["processes_needed"]) == ("cannot tell", None)
    assert cost.numbers["noise"] == pytest.approx(1.06, abs=0.005)
    found = costs(tmp_path / "b", slower(0.05, 0.1, 0.0))
    assert [one.verdict for one in of_kind("cost", found)] == ["cannot tell"]
    assert of_kind("unstable", found)
    (cost,) = of_kind("cost", costs(tmp_path / "c", slower(0.05, 0.002, 1.23)))
    assert "80" not in cost.sentence(EN)
    assert "2.23" in cost.sentence(EN)
    # Without an A/A pair nothing is called different.
    state = {"state": lambda t: "failed" if t.again else "done"}
    (cost,) = of_kind("cost", costs(tmp_path / "d", slower(0.5, 0.002, 0.0), **state))
    assert (cost.verdict, cost.numbers["noise"]) == ("cannot tell", None)


def test_a_failed_process_is_left_out_and_other_threads_are_named(tmp_path: Path) -> None:
    found = costs(
        tmp_path,
        slower(0.0, 0.002, 0.0),
        state=lambda t: "failed" if t.id.endswith("process2") else "done",
        resolved=lambda t: {"threads": 2} if t.cell == "lr=0.01" else {},
    )
    (cost,), (memory,) = of_kind("cost", found), of_kind("memory", found)
    assert cost.n == 2
    for one in (cost, memory):
        assert [str(x) for x in one.confounds] == ["threads: 1 against 2"]


def test_a_margin_of_a_cost_lets_it_be_called_equivalent(tmp_path: Path) -> None:
    study = {"cost": CostSpec(processes=6), "margins": {"train/sample_us": 0.05}}
    (cost,) = of_kind("cost", costs(tmp_path, slower(0.001, 0.002, 0.0), study))
    assert (cost.verdict, cost.numbers["margin"]) == ("equivalent", 0.05)
    assert "equivalent within 5.0%" in cost.sentence(EN)
    assert "[90% CI" in cost.sentence(EN)


def test_a_time_that_is_off_names_itself_while_its_ratio_may_be_good(tmp_path: Path) -> None:
    # Whole benches are 30% slower than others; within each, cells differ by very little more or less.
    def step_ms(trial: Trial, process: int) -> float:
        own = 1 + 0.001 * NOISE[(process + len(trial.cell) + 3 * trial.again) % 10]
        return own * (1, 1.3, 1.6)[process - 1] * (1 + (trial.cell == "lr=0.01"))

    found = costs(tmp_path, step_ms)
    (unstable,) = of_kind("unstable", found)
    assert (unstable.numbers["num_unstable"], unstable.numbers["num_wide"]) == (4, 0)
    text = unstable.sentence(EN)
    assert "4 of 4 times per batch may be off by more than 10.0%" in text
    assert "Ratios between settings, formed within rounds, are good to" in text
    (cost,) = of_kind("cost", found)
    assert cost.verdict == "different"
    assert cost.numbers["ratio"] == pytest.approx(2.0, rel=0.01)


def test_a_ratio_of_a_step_that_waits_for_the_host_and_one_that_waits_for_the_gpu_says_so(
    tmp_path: Path,
) -> None:
    study = made_study(vary={"batch_size": (2, 64)}, learn=False, cost=CostSpec(processes=3))
    folder = Fabricated().write(tmp_path / "run", study)
    for trial in folder.trials():
        if trial.watch == "steps":
            record = (file := folder.trial(trial.id).cost).read()
            share = 0.99 if record.batch_size == 2 else 0.2
            queued = {"queued_ms": share * sum(record.step_ms)}
            file.write(record.model_copy(update=queued))
    found = gather(folder)
    (cost,) = of_kind("cost", found)
    assert "batch_size=2 waits for the host and the other for the GPU" in cost.sentence(EN)
    assert [one.waits_for for one in found.measured] == ["host", "host", "gpu", "gpu"]
    assert "waits for" in [column.heading for column in cost_table(found, EN).columns]


def test_a_run_from_before_turns_is_read_and_compared_process_by_process(tmp_path: Path) -> None:
    folder = costs(tmp_path, slower(0.5, 0.002, 0.0), takes_turns=False).folder
    for trial in folder.trials():
        file = folder.trial(trial.id).path / "cost.json"
        if file.exists():
            old = json.loads(file.read_text())
            for name in ("bench", "turns", "last_ms", "sha256"):
                del old[name]
            file.write_text(json.dumps(old))
    (cost,) = of_kind("cost", gather(folder))
    assert cost.verdict == "different"
    assert cost.numbers["ratio"] == pytest.approx(1.5, abs=0.01)


def test_a_cell_that_was_never_timed_is_only_counted_as_not_run(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (2, 4)}, learn=False, seeds=1, cost=CostSpec())
    found = evidence(tmp_path, study, state=lambda t: "pending")
    assert [one.kind for one in findings(found)] == ["unfinished"]
