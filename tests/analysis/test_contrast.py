"""Who is compared with whom, worked out by hand."""

from typing import Any

from fabricate import made_study
from trainlab.analysis.evidence import level_of
from trainlab.analysis.metrics import Contrast, against_references, contrasts


def pairs(**question: Any) -> list[tuple[str, str, str]]:
    return [told(one) for one in contrasts(made_study(**question).all_cells)]


def told(one: Contrast) -> tuple[str, str, str]:
    return one.factor, one.reference.id, one.other.id


def test_in_a_grid_each_cell_is_compared_along_each_factor_with_its_first_level() -> None:
    assert pairs(vary={"batch_size": (1, 16), "lr": (0.1, 0.01)}) == [
        ("batch_size", "batch_size=1,lr=0.1", "batch_size=16,lr=0.1"),
        ("batch_size", "batch_size=1,lr=0.01", "batch_size=16,lr=0.01"),
        ("lr", "batch_size=1,lr=0.1", "batch_size=1,lr=0.01"),
        ("lr", "batch_size=16,lr=0.1", "batch_size=16,lr=0.01"),
    ]


def test_levels_are_compared_with_each_other_where_all_else_is_equal() -> None:
    cells = made_study(vary={"batch_size": (16, 1, 64)}).all_cells
    assert [one.levels for one in against_references(cells)] == [(16, 1), (16, 64)]
    assert [one.levels for one in contrasts(cells)] == [(16, 1), (16, 64), (1, 64)]
    assert pairs(vary={"batch_size": (1, 16, 64), "lr": (0.1, 0.01)})[-2:] == [
        ("batch_size", "batch_size=16,lr=0.1", "batch_size=64,lr=0.1"),
        ("batch_size", "batch_size=16,lr=0.01", "batch_size=64,lr=0.01"),
    ]
    found = pairs(design="one-at-a-time", vary={"batch_size": (1, 4), "lr": (0.1,)})
    assert found[3:] == [("batch_size", "batch_size=1", "batch_size=4")]
    # Many levels are compared with the first only.
    assert len(pairs(vary={"batch_size": (1, 2, 4, 8, 16)})) == 10
    assert len(pairs(vary={"batch_size": (1, 2, 4, 8, 16, 32)})) == 5


def test_one_at_a_time_compares_each_cell_with_the_base() -> None:
    vary = {"batch_size": (16,), "lr": (0.1,), "hidden": (4,)}
    found = contrasts(made_study(design="one-at-a-time", vary=vary).all_cells)
    assert [told(one) for one in found] == [
        ("batch_size", "base", "batch_size=16"),
        ("lr", "base", "lr=0.1"),
        ("model.hidden", "base", "hidden=4"),
    ]
    # The base's own learning rate is adam's default; its hidden size is the model's secret.
    assert [one.levels for one in found] == [(64, 16), (0.001, 0.1), (None, 4)]


def test_a_listed_cell_is_compared_as_a_whole_or_beside_a_grid_with_its_neighbour() -> None:
    (found,) = contrasts(made_study(cells=({"optimizer": "sgd", "lr": 0.1},)).all_cells)
    assert told(found) == ("optimizer,lr", "base", "optimizer=sgd,lr=0.1")
    assert found.levels == (None, None)
    listed = ({"batch_size": 16, "optimizer": "sgd"},)
    assert pairs(vary={"batch_size": (1, 16)}, cells=listed) == [
        ("batch_size", "batch_size=1", "batch_size=16"),
        ("optimizer", "batch_size=16", "batch_size=16,optimizer=sgd"),
    ]
    assert pairs(vary={"batch_size": (1, 16)}, cells=({"optimizer": "sgd"},))[1:] == [
        ("batch_size,optimizer", "batch_size=1", "optimizer=sgd")
    ]
    assert pairs() == pairs(vary={"batch_size": (4,)}) == []


def test_the_level_of_a_factor_is_known_also_where_a_cell_does_not_change_it() -> None:
    base = made_study(settings={"model": {"hidden": 3}}).all_cells[0]
    assert level_of(base, "batch_size") == 64
    assert level_of(base, "model.hidden") == 3
    assert level_of(base, "optimizer_options.rho") is None
