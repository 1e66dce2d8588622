"""Cells: combinations of levels, and what they are called."""

from trainlab.spec.study import cell_id, combinations, level_text, with_levels


def test_a_grid_is_every_combination_the_last_factor_fastest() -> None:
    found = combinations({"batch_size": (1, 16), "lr": (0.1, 0.01)}, "grid")
    assert [tuple(cell.values()) for cell in found] == [(1, 0.1), (1, 0.01), (16, 0.1), (16, 0.01)]


def test_one_at_a_time_is_the_base_and_each_level_alone() -> None:
    found = combinations({"batch_size": (16, 64), "lr": (0.1,)}, "one-at-a-time")
    assert found == [{}, {"batch_size": 16}, {"batch_size": 64}, {"lr": 0.1}]


def test_a_level_is_told_as_users_write_it_and_two_never_read_the_same() -> None:
    levels = (True, False, 0.001, 1.0, 16, "adam", 0.1234567)
    told = [level_text(level) for level in levels]
    assert told == ["true", "false", "0.001", "1", "16", "adam", "0.1234567"]


def test_a_cell_is_called_after_its_levels() -> None:
    assert cell_id({}) == "base"
    assert cell_id({"batch_size": 16, "model.hidden": 8}) == "batch_size=16,hidden=8"


def test_levels_override_what_was_asked_and_reach_into_mappings_and_texts_of_flags() -> None:
    asked = {"lr": 0.1, "model": {"hidden": 4, "bias": True}}
    merged = with_levels(asked, {"lr": 0.2, "model.hidden": 8, "optimizer_options.rho": 0.9})
    assert merged == {
        "lr": 0.2,
        "model": {"hidden": 8, "bias": True},
        "optimizer_options": {"rho": 0.9},
    }
    assert asked["lr"] == 0.1
    merged = with_levels({"model": "hidden=4,bias=true"}, {"model.dropout": 0.1})
    assert merged == {"model": {"hidden": 4, "bias": True, "dropout": 0.1}}
