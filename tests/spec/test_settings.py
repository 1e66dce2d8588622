import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlab.errors import SpecError
from trainlab.spec import TrainSpec, checked
from trainlab.spec.base import choices_of, did_you_mean, name_hint, nearest, setting_of
from trainlab.spec.optimizers import OPTIMIZERS
from trainlab.spec.question import Question, checked_question, layout_of
from trainlab.spec.settings import OF_WORKLOADS
from trainlab.spec.study import cell_id, combinations, level_text, with_levels


def test_all_problems_are_reported_together_with_place_value_and_rule() -> None:
    asked = {"batch_size": 0, "epochs": "x", "lr": -1, "optimiser": "adam"}
    with pytest.raises(SpecError) as caught:
        checked(TrainSpec, asked, "s.toml")
    assert caught.value.problems == (
        "s.toml: epochs: got 'x', must be a whole number",
        "s.toml: batch_size: got 0, must be greater than 0",
        "s.toml: lr: got -1, must be greater than 0",
        "s.toml: optimiser: unknown setting; did you mean optimizer?",
    )


@pytest.mark.parametrize("name", ["script", "change"])
def test_what_only_scripts_have_cannot_be_set_varied_or_seen_in_the_schema(name: str) -> None:
    asked = {"name": "a", "workload": "w", "settings": {name: "x=1"}}
    told = f"{name}: is for scripts alone; use `trainlab watch`"
    with pytest.raises(SpecError, match=told):
        checked_question({**asked, "nonsense": 1})
    varied = Question.model_validate({"name": "a", "workload": "w", "vary": {name: ["x", "y"]}})
    with pytest.raises(SpecError, match=f"vary.{told}"):
        layout_of(varied, {}, ())
    # A model's own parameter of that name is varied as any other.
    found, _ = layout_of(varied, {}, (name,))
    assert [cell.settings.model for cell in found] == [{name: "x"}, {name: "y"}]
    with pytest.raises(SpecError) as caught:
        checked(TrainSpec, {"zzz": 1})
    assert name not in str(caught.value).partition("known: ")[2].split(", ")


def test_text_from_the_command_line_becomes_values() -> None:
    model = "hidden=64,act=relu,bias=true,p=0.5"
    settings = checked(TrainSpec, {"lr": "1e-3", "zero_grad": "false", "model": model})
    assert (settings.lr, settings.zero_grad) == (0.001, False)
    assert settings.model == {"hidden": 64, "act": "relu", "bias": True, "p": 0.5}


def test_everything_an_optimizer_cannot_take_is_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        checked(TrainSpec, {"momentum": 0.9, "optimizer_options": "rho=1,alpha=2"})
    assert len(caught.value.problems) == 3


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "epochs": st.integers(1, 10**6),
            "batch_size": st.integers(1, 10**6),
            "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
            "lr": st.floats(1e-12, 1e6),
            "zero_grad": st.booleans(),
            "schedule": st.sampled_from(["none", "step", "cosine"]),
            "device": st.sampled_from(["auto", "cpu", "cuda", "cuda:3", "mps"]),
            "model": st.dictionaries(st.text("abc", min_size=1), st.integers(-(2**62), 2**62)),
        },
    )
)
def test_a_valid_spec_survives_json_unchanged(values: dict[str, object]) -> None:
    spec = checked(TrainSpec, values)
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec


@given(st.dictionaries(st.text(max_size=12), st.none() | st.text() | st.floats() | st.integers()))
def test_whatever_is_asked_gives_a_spec_or_our_error(values: dict[str, object]) -> None:
    try:
        outcome: object = checked(TrainSpec, values)
    except SpecError as error:
        outcome = error.problems
    assert isinstance(outcome, TrainSpec) or (isinstance(outcome, tuple) and outcome)


def test_every_setting_has_a_description_and_numbers_have_units() -> None:
    for name, field in TrainSpec.model_fields.items():
        assert field.description, name
        if not choices_of(TrainSpec, name) and name != "device" and name in OF_WORKLOADS:
            assert setting_of(TrainSpec, name).unit, name


def test_a_misspelt_name_is_found_by_what_it_is_alike_to_or_what_others_call_it() -> None:
    settings = ("lr", "batch_size", "epochs")
    others = {"learning_rate": "lr", "bs": "batch_size", "gpu": "cuda"}
    assert nearest("Batch-Sise", settings) == "batch_size", "whatever its case and dashes"
    assert nearest("zzz", settings) is None
    assert nearest("learning-rate", settings, others) == "lr"
    assert nearest("learning_rat", settings, others) == "lr"
    assert nearest("tpu", ("auto", "cpu"), others) == "cpu"
    assert did_you_mean("epoch", settings) == "; did you mean epochs?"
    assert did_you_mean("zzz", settings) == ""
    assert name_hint("zzz", settings, "known: lr") == "known: lr"


# Cells: combinations of levels, and what they are called.


def test_cells_are_every_combination_or_each_level_alone() -> None:
    vary = {"batch_size": (1, 16), "lr": (0.1, 0.01)}
    found = combinations(vary, "grid")
    assert [tuple(cell.values()) for cell in found] == [(1, 0.1), (1, 0.01), (16, 0.1), (16, 0.01)]
    found = combinations(vary, "one-at-a-time")
    assert found == [{}, {"batch_size": 1}, {"batch_size": 16}, {"lr": 0.1}, {"lr": 0.01}]


def test_a_cell_is_called_after_its_levels_as_users_write_them() -> None:
    levels = (True, False, 0.001, 1.0, 16, "adam", 0.1234567)
    told = [level_text(level) for level in levels]
    assert told == ["true", "false", "0.001", "1", "16", "adam", "0.1234567"]
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
