"""The space of a search: what is written means what is tried, and what makes no sense is refused."""

import math
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlab.errors import SpecError
from trainlab.resolve import CONFIRMED_SEEDS, resolve
from trainlab.spec.question import checked_question
from trainlab.spec.search import Bars, Dimension, dimension_of, grid_of, ordered
from trainlab.workloads.reference import BUILTIN

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-9)


def test_ranges_and_choices_are_what_is_written() -> None:
    for text, expected in (
        ("1e-5..1e-1", {"low": 1e-5, "high": 1e-1, "is_log": True}),
        ("32..512", {"low": 32, "high": 512}),
        ("1..100", {"low": 1, "high": 100, "is_log": True}),
        ("0.1..0.9", {"low": 0.1, "high": 0.9}),
        ("1e-5..1e-1 linear", {"low": 1e-5, "high": 1e-1}),
        ("2..4 log", {"low": 2, "high": 4, "is_log": True}),
        ("-1..1", {"low": -1, "high": 1}),
        ("adam,sgd", {"choices": ("adam", "sgd")}),
        ("true,false", {"choices": (True, False)}),
        ("0..0.99 if optimizer=sgd", {"low": 0, "high": 0.99, "only_if": ("optimizer", "sgd")}),
        ([16, 64], {"choices": (16, 64)}),
    ):
        assert dimension_of("x", text) == Dimension(name="x", **expected), text
    assert dimension_of("x", "32..512").is_whole
    assert not dimension_of("x", "32..512.0").is_whole


def test_a_wrong_space_is_refused_in_a_line() -> None:
    for text in (
        "",
        "3",
        "1..",
        "..1",
        "5..1",
        "1..1",
        "a..b",
        "1..nan",
        "1..inf",
        "0..1 log",
        "x,x",
    ):
        with pytest.raises(SpecError, match=r"^x: got .*must ") as told:
            dimension_of("x", text)
        assert "\n" not in str(told.value)


@given(NUMBERS, NUMBERS)
def test_a_range_is_read_as_it_is_written_and_what_is_drawn_stays_in_it(a: float, b: float) -> None:
    low, high = sorted((a, b))
    if low == high:
        return
    found = dimension_of("x", f"{low!r}..{high!r}")
    assert (found.low, found.high) == (low, high)
    assert dimension_of("x", found.text()).is_log == found.is_log
    for share in (0.0, 0.3, 1.0):
        value = found.rounded(low + share * (high - low))
        assert low <= float(value) <= high
        assert math.isclose(
            float(value), low + share * (high - low), rel_tol=0.006, abs_tol=1e-12
        ) or (float(value) in (low, high))


@given(st.text(max_size=30))
def test_any_text_is_a_space_or_refused(text: str) -> None:
    ends = 2
    with suppress(SpecError):
        ends = len(dimension_of("x", text).ends)
    assert ends >= 2


def test_a_condition_names_a_choice_that_there_is() -> None:
    optimizer = dimension_of("optimizer", "adam,sgd")
    momentum = dimension_of("momentum", "0.5..0.9 if optimizer=sgd")
    assert ordered([momentum, optimizer]) == (optimizer, momentum)
    with pytest.raises(SpecError, match="but optimizer has the choices adam, sgd"):
        ordered([optimizer, dimension_of("momentum", "0.5..0.9 if optimizer=sdg")])
    with pytest.raises(SpecError, match="which must be one of optimizer"):
        ordered([optimizer, dimension_of("momentum", "0.5..0.9 if lr=1")])
    grid = grid_of([optimizer, dimension_of("momentum", "0,0.9 if optimizer=sgd")])
    assert grid == [
        {"optimizer": "adam"},
        {"optimizer": "sgd", "momentum": 0},
        {"optimizer": "sgd", "momentum": 0.9},
    ]


def test_a_bar_stops_what_is_worse_and_what_is_no_number() -> None:
    accuracy = Bars(metric="val/accuracy", is_lower_better=False, values=(0.5, 0.6))
    loss = Bars(metric="val/loss", is_lower_better=True, values=(0.5,))
    assert [accuracy.stops(1, v) for v in (0.5, 0.49, math.nan)] == [False, True, True]
    assert [accuracy.stops(epoch, 0.0) for epoch in (2, 3)] == [True, False]
    assert [loss.stops(1, v) for v in (0.5, 0.51)] == [False, True]


def searched(**values: object) -> dict[str, object]:
    return {"workload": "fashion-mlp", "search": {"vary": {"lr": "1e-4..1e-1"}}, **values}


def test_a_study_that_searches_has_a_validation_part_and_seeds_of_its_own() -> None:
    study = resolve(checked_question(searched()), BUILTIN["fashion-mlp"])
    assert study.search is not None
    assert study.search.metric == "val/accuracy"
    assert study.settings.val_fraction == 0.1
    assert study.seeds == tuple(range(1, CONFIRMED_SEEDS + 1))
    assert study.cells == ()
    # What a search tries trains together, also where its base has one seed.
    assert resolve(checked_question(searched(seeds=1)), BUILTIN["fashion-mlp"]).trains_several


def test_what_cannot_be_searched_is_told_before_anything_runs() -> None:
    for values, rule in (
        (searched(vary={"lr": (0.1, 0.2)}), "leave vary and cells out"),
        (searched(settings={"lr": 0.1}), "lr: got 0.1, but it is varied too"),
        (searched(settings={"val_fraction": 0}), "test data are never searched on"),
        (searched(search={"vary": {}}), "got none, must name what is searched"),
        (searched(search={"vary": {"lr": "1..0"}}), r"search\.vary\.lr: got '1\.\.0', must be LOW"),
        (searched(search={"vary": {"rate": "1..2"}}), "unknown factor"),
        (searched(search={"vary": {"lr": "0..1"}}), "lr=0: lr: got 0, must be greater than 0"),
        (
            searched(search={"vary": {"momentum": "0.1..0.9", "optimizer": ["adam", "sgd"]}}),
            "momentum",
        ),
        (
            searched(search={"vary": {"lr": "1e-3..1"}, "sampler": "grid"}),
            "lr: is a range, but grid",
        ),
        (searched(objective="loss:max", search={"vary": {"lr": "1e-3..1"}, "x": 1}), "unknown"),
    ):
        with pytest.raises(SpecError, match=re.compile(rule)):
            resolve(checked_question(values), BUILTIN["fashion-mlp"])
