import pytest

from trainlab.spec.study import cell_id, combinations, level_text, with_levels


def test_a_grid_is_every_combination_the_last_factor_fastest() -> None:
    found = list(combinations({"batch_size": (1, 16), "lr": (0.1, 0.01)}, "grid"))
    assert found == [
        {"batch_size": 1, "lr": 0.1},
        {"batch_size": 1, "lr": 0.01},
        {"batch_size": 16, "lr": 0.1},
        {"batch_size": 16, "lr": 0.01},
    ]


def test_one_at_a_time_is_the_base_and_each_level_alone() -> None:
    found = list(combinations({"batch_size": (16, 64), "lr": (0.1,)}, "one-at-a-time"))
    assert found == [{}, {"batch_size": 16}, {"batch_size": 64}, {"lr": 0.1}]


@pytest.mark.parametrize(
    ("level", "told"),
    [(True, "true"), (False, "false"), (0.001, "0.001"), (1.0, "1"), (16, "16"), ("adam", "adam")],
)
def test_a_level_is_told_as_users_write_it(level: bool | float | str, told: str) -> None:
    assert level_text(level) == told


def test_two_levels_never_read_the_same() -> None:
    assert level_text(0.1234567) != level_text(0.1234568)


def test_a_cell_is_called_after_its_levels() -> None:
    assert cell_id({}) == "base"
    assert cell_id({"batch_size": 16, "model.hidden": 8}) == "batch_size=16,hidden=8"


def test_levels_override_what_was_asked_and_reach_into_mappings() -> None:
    asked = {"lr": 0.1, "model": {"hidden": 4, "bias": True}}
    merged = with_levels(asked, {"lr": 0.2, "model.hidden": 8, "optimizer_options.rho": 0.9})
    assert merged == {
        "lr": 0.2,
        "model": {"hidden": 8, "bias": True},
        "optimizer_options": {"rho": 0.9},
    }
    assert asked["lr"] == 0.1


def test_levels_reach_into_a_mapping_that_a_flag_gave_as_text() -> None:
    merged = with_levels({"model": "hidden=4,bias=true"}, {"model.dropout": 0.1})
    assert merged == {"model": {"hidden": 4, "bias": True, "dropout": 0.1}}
