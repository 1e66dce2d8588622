import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainlab.plan import Group, Trial, count_trials, trials_of
from trainlab.plan import plan as plan_groups
from trainlab.spec import Cell, CostSpec, Study, TrainSpec


def plan(study: Study) -> tuple[Trial, ...]:
    return trials_of(plan_groups(study))


def test_plan_makes_one_trial_per_seed_in_order() -> None:
    study = Study(name="s", workload="fashion-mlp", settings=TrainSpec(), seeds=(3, 1, 2))
    trials = plan(study)
    assert [trial.seed for trial in trials] == [3, 1, 2]
    assert len({trial.id for trial in trials}) == 3
    assert all(trial.settings == study.settings for trial in trials)


def test_the_same_study_plans_the_same_trials() -> None:
    study = Study(name="s", workload="fashion-mlp", settings=TrainSpec(), seeds=(1, 2))
    assert plan(study) == plan(Study.model_validate_json(study.model_dump_json()))


def test_cost_is_timed_in_bare_processes_before_any_is_watched() -> None:
    cost = CostSpec(processes=2)
    study = Study(name="s", workload="mnist-cnn", settings=TrainSpec(), cost=cost, learn=False)
    trials = plan(study)
    assert [trial.watch for trial in trials] == ["steps", "steps", "layers", "operators"]
    assert len({trial.id for trial in trials}) == 4
    assert all(trial.kind == "cost" and trial.weights_of is None for trial in trials)


def test_trained_and_untrained_weights_take_turns() -> None:
    cost = CostSpec(processes=2, weights="both")
    study = Study(name="s", workload="mnist-cnn", settings=TrainSpec(), seeds=(4, 5), cost=cost)
    costs = [trial for trial in plan(study) if trial.kind == "cost"]
    assert [plan(study)[0].id, plan(study)[-1].id] == ["learn-seed4", "learn-seed5"]
    timed, watched = costs[:4], costs[4:]
    assert [trial.weights_of for trial in timed] == [None, "learn-seed4"] * 2
    assert [trial.weights_of for trial in watched] == [None, None, "learn-seed4", "learn-seed4"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"learn": False}, "nothing to do"),
        ({"learn": False, "cost": CostSpec(weights="trained")}, "nothing is trained here"),
    ],
)
def test_a_study_that_cannot_be_answered_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Study(name="s", workload="w", settings=TrainSpec(), **given)


def grid(**given: object) -> Study:
    cells = tuple(
        Cell(id=f"batch_size={n}", levels={"batch_size": n}, settings=TrainSpec(batch_size=n))
        for n in (1, 2, 4, 8, 16, 32)
    )
    return Study(
        **{
            "name": "s",
            "workload": "w",
            "settings": cells[0].settings,
            "cells": cells,
            "seeds": (1, 2, 3),
            **given,
        }
    )


def test_seeds_are_the_outer_loop_and_cells_are_shuffled_within_each() -> None:
    trials = plan(grid())
    assert [trial.seed for trial in trials] == [1] * 6 + [2] * 6 + [3] * 6
    orders = [[t.cell for t in trials if t.seed == seed] for seed in (1, 2, 3)]
    asked = [cell.id for cell in grid().cells]
    assert all(sorted(order) == sorted(asked) for order in orders)
    assert len({tuple(order) for order in (*orders, asked)}) == 4


def test_the_first_trial_is_the_quickest_so_that_a_result_is_soon_there() -> None:
    first, *others = plan(grid())
    assert first.cell == "batch_size=32"
    assert len({trial.id for trial in (first, *others)}) == 18


def test_a_study_file_plans_the_same_trials_in_the_same_order_in_every_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "s.json").write_text(grid(cost=CostSpec()).model_dump_json())
    script = (
        "from pathlib import Path; from trainlab.plan import plan; from trainlab.spec import Study;"
        "study = Study.model_validate_json(Path('s.json').read_text());"
        "print(*[t.id for g in plan(study) for t in g.trials])"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] == [trial.id for trial in plan(grid(cost=CostSpec()))]


def test_cost_comes_after_the_first_seed_so_that_a_study_cut_short_has_something_of_all() -> None:
    kinds = [trial.kind for trial in plan(grid(cost=CostSpec()))]
    assert kinds[:7] == ["learn"] * 6 + ["cost"]
    assert kinds[-12:] == ["learn"] * 12


def test_the_smallest_and_the_largest_batch_are_measured_twice_in_turns_with_the_others() -> None:
    trials = plan(grid(cost=CostSpec(processes=2, mode="both"), learn=False))
    again = [trial for trial in trials if trial.again]
    sizes = [trial.settings.batch_size for trial in trials]
    assert {(t.settings.batch_size, t.watch) for t in again} == {
        (min(sizes), "steps"),
        (max(sizes), "steps"),
    }
    assert len(again) == 2 * 2 * 2
    timed = [trial for trial in trials if trial.watch == "steps"]
    half = len(timed) // 2
    assert all(trial.id.endswith("process1") for trial in timed[:half])
    assert all(trial.id.endswith("process2") for trial in timed[half:])


def test_a_bench_has_every_cell_of_one_mode_the_first_of_all_first() -> None:
    study = grid(cost=CostSpec(processes=2, mode="both"), learn=False)
    benches: dict[str, list[Group]] = {}
    for group in plan_groups(study):
        if group.bench is not None:
            benches.setdefault(group.bench, []).append(group)
    assert list(benches) == ["train-1", "inference-1", "train-2", "inference-2"]
    for groups in benches.values():
        trials = [trial for group in groups for trial in group.trials]
        assert {trial.watch for trial in trials} == {"steps"}
        assert len({str(trial.cost) for trial in trials}) == 1
        cells = [trial.cell for trial in trials if not trial.again]
        assert cells == [cell.id for cell in study.all_cells]


def test_a_single_cell_has_nothing_to_be_told_apart_from_noise() -> None:
    study = Study(name="s", workload="w", settings=TrainSpec(), cost=CostSpec(), learn=False)
    assert not any(trial.again for trial in plan(study))


def test_trial_ids_are_folder_names_and_unique_even_for_long_or_odd_cells() -> None:
    names = ["a/b", "a b", "a:b", "x" * 200, "x" * 201]
    cells = tuple(
        Cell(id=name, levels={"model.x": name}, settings=TrainSpec(model={"x": name}))
        for name in names
    )
    ids = [trial.id for trial in plan(grid(cells=cells))]
    assert len(set(ids)) == len(ids)
    assert all("/" not in one and " " not in one and len(one) < 120 for one in ids)


def test_timed_trials_and_learn_trials_are_groups_of_their_own_and_watched_ones_share_one() -> None:
    groups = plan_groups(grid(cost=CostSpec(processes=2), seeds=(1, 2)))
    for group in groups:
        assert len({trial.kind for trial in group.trials}) == 1
        first = group.trials[0]
        assert group.is_alone is (first.kind == "cost")
        assert (group.device, group.threads) == (first.settings.device, first.settings.threads)
        watches = [trial.watch for trial in group.trials]
        assert watches in ([None], ["steps"], ["layers", "operators"])
        assert len({(trial.cell, str(trial.cost)) for trial in group.trials}) == 1
    assert {len(group.trials) for group in groups} == {1, 2}


@pytest.mark.parametrize("num_cells", [1, 2, 3])
@pytest.mark.parametrize(
    "cost",
    [
        None,
        CostSpec(processes=2),
        CostSpec(processes=4, mode="both", weights="both"),
        CostSpec(mode="inference", weights="trained"),
    ],
)
@pytest.mark.parametrize("learn", [True, False])
def test_trials_are_counted_as_they_are_planned(
    num_cells: int, cost: CostSpec | None, learn: bool
) -> None:
    if not learn and (cost is None or cost.weights != "untrained"):
        pytest.skip("no such study")
    cells = [
        Cell(id=f"n{size}", levels={"batch_size": size}, settings=TrainSpec(batch_size=size))
        for size in range(1, num_cells + 1)
    ]
    study = Study(
        name="s",
        workload="fashion-mlp",
        settings=TrainSpec(),
        cells=tuple(cells) if num_cells > 1 else (),
        seeds=(1, 2, 3),
        learn=learn,
        cost=cost,
    )
    assert count_trials(num_cells, 3, learn=learn, cost=cost) == len(plan(study))
