"""Compiled, scripted, lazy and other models that torch runs in ways of its own."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import Square
from training import HomedSetup, MakeSetup, probed
from trainlab.instruments.model_records import Weights, load_weights
from trainlab.measure.layer_profile import profile_layers
from trainlab.record.trial_record import Progress
from trainlab.spec import CostSpec
from trainlab.workloads.workload import Workload

SPEC = CostSpec(warmup_steps=1, active_steps=2)


class Scriptable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(inputs)))


class Net(Scriptable):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(Square.apply(torch.relu(self.first(inputs))))


def wrapped() -> nn.Module:
    return torch.compile(Net(), backend="eager", fullgraph=True)


def in_place() -> nn.Module:
    model = Net()
    model.compile(backend="eager", fullgraph=True)
    return model


def partly() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), in_place())


def scripted() -> nn.Module:
    return torch.jit.script(Scriptable())


MakeModel = Callable[[], nn.Module]
Zoo = Callable[..., HomedSetup]


@pytest.fixture
def zoo(make_setup: MakeSetup, tiny: Workload) -> Zoo:
    def make(model: MakeModel, **asked: Any) -> HomedSetup:
        return make_setup(workload=dataclasses.replace(tiny, model=model), **asked)

    return make


def trained(setup: HomedSetup, *probes: str) -> dict[str, float]:
    """What came of it, and how many graphs the compiler has made for it."""
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    reset()
    before = counters["stats"]["unique_graphs"]
    _, progress = probed(setup, *probes)
    return {**progress.final, "graphs": int(counters["stats"]["unique_graphs"] - before)}


@pytest.mark.parametrize("model", [pytest.param(wrapped, marks=pytest.mark.slow), partly])
def test_our_hooks_are_not_compiled_into_the_model(zoo: Zoo, model: MakeModel) -> None:
    bare = trained(zoo(model))
    watched = trained(zoo(model), "*:grad_output:norm", "*:activation:mean@step")
    assert bare["graphs"] >= 1
    assert watched == bare


def test_a_model_that_cannot_be_seen_inside_is_one_call_and_it_is_said(zoo: Zoo) -> None:
    for model in (scripted, wrapped):
        setup = zoo(model)
        record = profile_layers(setup, SPEC)
        (row, *others) = record.rows
        assert not [other for other in others if other.phase == "forward"]
        assert row.num_parameters == sum(p.numel() for p in setup.model.parameters())
        assert min(row.forward_us) > 0
        assert min(row.backward_us) > 0
        assert [note.code for note in setup.notes] == ["not_seen_inside"]


def test_a_compiled_part_is_a_call_among_the_others(zoo: Zoo) -> None:
    record = profile_layers(zoo(partly), SPEC)
    assert [row.name for row in record.rows if row.phase == "forward"] == ["0", "1"]
    assert record.rows[1].inputs == [0]


def test_weights_are_kept_under_the_names_of_the_plain_model(zoo: Zoo) -> None:
    setup, kept = zoo(partly), Weights()
    kept.trial_begins(setup.view(setup.folder))
    kept.trial_ends(Progress())
    saved = torch.load(setup.folder.model_file, weights_only=True)
    nn.Sequential(nn.Linear(8, 8), Net()).load_state_dict(saved)
    again = zoo(partly, seed=2)
    load_weights(again, setup.folder)
    pairs = zip(setup.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    # As an earlier trainlab kept them.
    torch.save(setup.model.state_dict(), setup.folder.model_file)
    load_weights(zoo(partly, seed=3), setup.folder)


def test_a_probe_inside_a_compiled_model_says_why_it_cannot_be(zoo: Zoo) -> None:
    with pytest.raises(Exception, match=r"never called.*compiled or scripted.*as a whole"):
        trained(zoo(in_place), "first:activation:mean")


def lazy() -> nn.Module:
    return nn.Sequential(
        nn.LazyLinear(8), nn.ReLU(), nn.Dropout(0.5), nn.LazyBatchNorm1d(), nn.LazyLinear(3)
    )


def test_a_lazy_model_trains_profiles_and_repeats_with_its_seed(zoo: Zoo) -> None:
    first, second = trained(zoo(lazy)), trained(zoo(lazy), "0:activation:mean")
    assert first == second
    assert trained(zoo(lazy, seed=2)) != first
    assert profile_layers(zoo(lazy), SPEC).rows[0].num_parameters == 8 * 8 + 8
