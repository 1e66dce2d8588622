"""From a study to its trials: which there are, in which order, and in which groups."""

from itertools import product

import pytest

from trainlab.plan import Group, Trial, count_trials, trials_of
from trainlab.plan import plan as plan_groups
from trainlab.spec import Cell, CostSpec, Study, TrainSpec


def plan(study: Study) -> tuple[Trial, ...]:
    return trials_of(plan_groups(study))


def lone(**given: object) -> Study:
    return Study(**{"name": "s", "workload": "w", "settings": TrainSpec(), **given})


def grid(sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32), **given: object) -> Study:
    cells = tuple(
        Cell(id=f"batch_size={n}", levels={"batch_size": n}, settings=TrainSpec(batch_size=n))
        for n in sizes
    )
    return lone(**{"settings": cells[0].settings, "cells": cells, "seeds": (1, 2, 3), **given})


def test_a_study_without_cells_is_a_trial_per_seed_in_order() -> None:
    study = lone(seeds=(3, 1, 2))
    trials = plan(study)
    assert [trial.id for trial in trials] == ["learn-seed3", "learn-seed1", "learn-seed2"]
    assert all(trial.settings == study.settings for trial in trials)


def test_cost_is_timed_in_bare_processes_before_any_is_watched() -> None:
    trials = plan(lone(cost=CostSpec(processes=2), learn=False))
    assert [trial.watch for trial in trials] == ["steps", "steps", "layers", "operators"]
    assert all(trial.kind == "cost" and trial.weights_of is None for trial in trials)
    # A single cell has nothing to be told apart from noise.
    assert not any(trial.again for trial in trials)
    trials = plan(lone(seeds=(4, 5), cost=CostSpec(processes=2, weights="both")))
    assert [trials[0].id, trials[-1].id] == ["learn-seed4", "learn-seed5"]
    weights = [trial.weights_of for trial in trials if trial.kind == "cost"]
    assert weights == [None, "learn-seed4"] * 2 + [None, None, "learn-seed4", "learn-seed4"]


def test_a_study_that_cannot_be_answered_is_refused() -> None:
    trained = CostSpec(weights="trained")
    for told, cost in (("nothing to do", None), ("nothing is trained here", trained)):
        with pytest.raises(ValueError, match=told):
            lone(learn=False, cost=cost)


def test_seeds_are_the_outer_loop_and_cells_are_shuffled_within_each() -> None:
    trials = plan(grid())
    assert [trial.seed for trial in trials] == [1] * 6 + [2] * 6 + [3] * 6
    orders = [[t.cell for t in trials if t.seed == seed] for seed in (1, 2, 3)]
    asked = [cell.id for cell in grid().cells]
    assert all(sorted(order) == sorted(asked) for order in orders)
    assert len({tuple(order) for order in (*orders, asked)}) == 4
    # The first trial is the quickest, so that a result is soon there.
    assert trials[0].cell == "batch_size=32"
    assert len({trial.id for trial in trials}) == 18


def test_cost_comes_after_the_first_seed_so_that_a_study_cut_short_has_something_of_all() -> None:
    kinds = [trial.kind for trial in plan(grid(cost=CostSpec()))]
    assert kinds[:7] == ["learn"] * 6 + ["cost"]
    assert kinds[-12:] == ["learn"] * 12
    # The order is the same in every process.
    ids = [trial.id for trial in plan(grid((1, 2, 4), seeds=(1, 2)))]
    in_order = ((size, seed) for seed in (1, 2) for size in (4, 1, 2))
    assert ids == [f"learn-batch_size={size}-seed{seed}" for size, seed in in_order]


def test_a_bench_has_every_cell_of_one_mode_and_the_smallest_and_largest_batch_twice() -> None:
    study = grid(cost=CostSpec(processes=2, mode="both"), learn=False)
    benches: dict[str, list[Group]] = {}
    for group in plan_groups(study):
        if group.bench is not None:
            benches.setdefault(group.bench, []).append(group)
    assert list(benches) == ["train-1", "inference-1", "train-2", "inference-2"]
    for name, groups in benches.items():
        trials = trials_of(groups)
        assert {trial.watch for trial in trials} == {"steps"}
        assert len({str(trial.cost) for trial in trials}) == 1
        assert all(trial.id.endswith(f"process{name[-1]}") for trial in trials)
        cells = [trial.cell for trial in trials if not trial.again]
        assert cells == [cell.id for cell in study.all_cells]
        assert [t.settings.batch_size for t in trials if t.again] == [1, 32]


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
        assert group.settings == first.settings
        watches = [trial.watch for trial in group.trials]
        assert watches in ([None], ["steps"], ["layers", "operators"])
        assert len({(trial.cell, str(trial.cost)) for trial in group.trials}) == 1
    assert {len(group.trials) for group in groups} == {1, 2}


def test_settings_are_measured_twice_with_one_kind_of_weights_alone() -> None:
    trials = plan(grid(cost=CostSpec(processes=1, weights="both")))
    assert [trial.weights_of for trial in trials if trial.again] == [None, None]
    assert any(trial.weights_of for trial in trials)


def test_trials_are_counted_as_they_are_planned() -> None:
    short = CostSpec(processes=2)
    both = CostSpec(processes=4, mode="both", weights="both")
    trained = CostSpec(mode="inference", weights="trained")
    asked = ((None, True), (short, False), (short, True), (both, True), (trained, True))
    for num, (cost, learn) in product((1, 2, 3), asked):
        study = grid(tuple(range(1, num + 1)), cost=cost, learn=learn)
        assert count_trials(num, 3, learn=learn, cost=cost) == len(plan(study))
