"""Probes as a user writes them: text or table, checked at birth."""

import pytest

from trainlab.errors import SpecError
from trainlab.spec import Spec, checked
from trainlab.spec.probe import Bins, ProbeSpec, probe_of


class Holder(Spec):
    """A study has its probes like this."""

    probes: tuple[ProbeSpec, ...] = ()


def test_text_says_selector_quantity_reducer_and_cadence() -> None:
    for text, *parts in (
        ("relu:grad_input:sq_sum", ("relu",), "grad_input", "sq_sum", "epoch"),
        ("relu:grad_input:sq_sum@step", ("relu",), "grad_input", "sq_sum", "step"),
        ("*.weight:grad:norm@5steps", ("*.weight",), "grad", "norm", 5),
        ("a, type=Conv2d:activation:mean", ("a", "type=Conv2d"), "activation", "mean", "epoch"),
        ("x:weight:histogram(-1,1,8)@2", ("x",), "weight", "histogram(-1,1,8)", 2),
        ("x:update:./a@b/my.py:f@step", ("x",), "update", "./a@b/my.py:f", "step"),
    ):
        spec = probe_of(text)
        assert [spec.select, spec.quantity, spec.reducer, spec.every] == parts


def test_a_table_says_the_same_as_the_text_and_both_survive_a_record() -> None:
    table = {"select": ["a", "b"], "quantity": "grad", "reducer": "norm", "every": 10}
    holder = checked(Holder, {"probes": ("a,b:grad:norm@10", table)})
    assert holder.probes[0] == holder.probes[1]
    assert checked(Holder, holder.model_dump(mode="json")) == holder
    assert probe_of(str(holder.probes[0])) == holder.probes[0]
    assert len(set(holder.probes)) == 1


WRONG = [
    ("relu", "--probe: got 'relu', must be SELECT:QUANTITY:REDUCER"),
    ("relu:grad_inptu:sum", r"quantity: got 'grad_inptu', .*; did you mean grad_input\?"),
    ("relu:grad_input:sqsum", r"reducer: got 'sqsum', must be .*; did you mean sq_sum\?"),
    ("relu:grad_input:xyz", "got 'xyz', must be one of sum, sq_sum, norm"),
    ("relu:grad:sum@week", "every: got 'week', must be step, epoch or a number of steps"),
    ("relu:grad:sum@0", "every: got 0, must be step, epoch or a number"),
    (",relu:grad:sum", "select: got nothing, must be a layer's name"),
    ("relu:activation:my.txt:f", "a function of your own is FILE.py:FUNCTION"),
    ("relu:activation:histogram(1)", r"must be histogram, histogram\(LOW,HIGH,BINS\)"),
    ("relu:activation:histogram(2,1,5)", "histogram: got low 2, must be below high 1"),
    ("relu:activation:histogram(log,0,1,5)", "got low 0, must be above 0 for log bins"),
    ("relu:grad:dead_fraction", "dead_fraction of grad, it must be of activation"),
]


def test_a_mistake_is_one_line_with_the_nearest_name() -> None:
    for text, told in WRONG:
        with pytest.raises(SpecError, match=told) as error:
            probe_of(text)
        (line,) = error.value.problems
        assert line.startswith("--probe")
        assert "\n" not in line


def test_all_mistakes_of_a_probe_and_of_a_study_are_told_together() -> None:
    with pytest.raises(SpecError) as error:
        probe_of("relu:gradd:summ@never")
    assert len(error.value.problems) == 3
    with pytest.raises(SpecError) as error:
        checked(Holder, {"probes": ["relu", "relu:grad:summ"]}, "study.toml")
    first, second = error.value.problems
    assert first.startswith("study.toml: probes[0]: got 'relu', must be SELECT")
    assert second.startswith("study.toml: probes[1].reducer: got 'summ', must be one of sum, ")
    assert "; did you mean sum?" in second


def test_bins_have_one_edge_more_than_there_are_of_them() -> None:
    assert Bins(log=False, low=-1, high=1, num=4).edges() == [-1, -0.5, 0, 0.5, 1]
    assert Bins(low=1e-2, high=1, num=2).edges() == pytest.approx([0.01, 0.1, 1])
    assert probe_of("x:grad:histogram").bins == Bins()
    assert probe_of("x:grad:norm").bins is None
