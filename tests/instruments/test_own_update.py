"""An update of the user's own is seen whole: all its forward and backward passes and optimizers' steps.

The adversaries have one weight each and all data is the same, so that every number is worked out by hand.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import is_unwatched
from training import MakeSetup, probed
from trainlab.data.dataset import Dataset, Split
from trainlab.measure.layer_profile import profile_layers
from trainlab.record.learning_record import ProbeRecord
from trainlab.spec import CostSpec
from trainlab.workloads.workload import Workload

REAL, NOISE, MAKER, CRITIC, RATE = 3.0, 2.0, 0.5, 0.25, 0.1
"""The data, what the generator gets, both weights at the start, the learning rate."""
Update = Callable[[Any, Any], Any]


def one_weight(value: float) -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, value)
    return layer


def adversaries() -> dict[str, nn.Module]:
    return {"maker": one_weight(MAKER), "critic": nn.Sequential(one_weight(CRITIC))}


def descents(models: Any, settings: Any) -> dict[str, torch.optim.Optimizer]:
    return {name: torch.optim.SGD(one.parameters(), lr=RATE) for name, one in models.items()}


def gan_update(ctx: Any, batch: Any) -> dict[str, Tensor]:
    """The critic learns from two backward passes; then the maker, through the changed critic."""
    critic, made = ctx.models["critic"], ctx.models["maker"](torch.full((4, 1), NOISE))
    ctx.optimizers["critic"].zero_grad()
    real = -critic(batch[0]).mean()
    ctx.backward(real)
    fake = critic(made.detach()).mean()
    ctx.backward(fake)
    ctx.optimizers["critic"].step()
    ctx.optimizers["maker"].zero_grad()
    deceived = -critic(made).mean()
    ctx.backward(deceived)
    nn.utils.clip_grad_norm_(ctx.models["maker"].parameters(), 100.0)
    ctx.optimizers["maker"].step()
    return {"loss": real + fake, "deceived": deceived}


def gan_test(models: Any, batch: Any) -> Tensor:
    return models["critic"](batch[0]).mean()


def constant(count: int) -> Split:
    return Split(torch.full((count, 1), REAL), torch.zeros(count))


def workload(update: Update = gan_update, **fields: Any) -> Workload:
    fields = {"model": adversaries, "optimizer": descents, "evaluate": gan_test, **fields}
    data = Dataset("constant", train=constant(8), test=constant(4))
    defaults = {"epochs": 1, "batch_size": 4, "log_every_steps": 1}
    return Workload(name="own", data=data, update=update, defaults=defaults, **fields)


def by_hand(num_steps: int) -> list[dict[str, float]]:
    """Both gradients of each update, and what they do to the weights."""
    maker, critic, told = MAKER, CRITIC, []
    for _ in range(num_steps):
        made = maker * NOISE
        of_critic = made - REAL
        critic -= RATE * of_critic
        of_maker = -critic * NOISE
        maker -= RATE * of_maker
        told.append({"critic.0.weight": of_critic, "maker.weight": of_maker})
    return told


def values(lines: list[ProbeRecord]) -> list[dict[str, float]]:
    """By step and place."""
    told: dict[int, dict[str, float]] = {}
    for line in lines:
        assert line.value is not None
        told.setdefault(line.step, {})[line.target] = line.value
    return list(told.values())


def test_gradients_are_read_whole_before_the_optimizer_that_owns_them_steps(
    make_setup: MakeSetup,
) -> None:
    lines, _ = probed(make_setup(workload=workload()), "*:grad:sum@step", "*:update:sum@step")
    gradients = [line for line in lines if line.quantity == "grad"]
    assert values(gradients) == [pytest.approx(step) for step in by_hand(2)]
    assert {line.fired for line in gradients} == {1}
    updates = [{name: -RATE * one for name, one in step.items()} for step in by_hand(2)]
    found = values([line for line in lines if line.quantity == "update"])
    assert found == [pytest.approx(step) for step in updates]


def test_every_pass_of_an_update_is_a_call_of_its_own(make_setup: MakeSetup) -> None:
    lines, _ = probed(make_setup(workload=workload()), "*:activation:mean@step")
    first, *_ = values(lines)
    made, of_critic = MAKER * NOISE, MAKER * NOISE - REAL
    changed = CRITIC - RATE * of_critic
    modules = {name: value for name, value in first.items() if name.startswith(("maker", "critic"))}
    assert modules == pytest.approx(
        {
            "maker": made,
            "critic": CRITIC * REAL,
            "critic.0": CRITIC * REAL,
            "critic/2": CRITIC * made,
            "critic.0/2": CRITIC * made,
            "critic/3": changed * made,
            "critic.0/3": changed * made,
        }
    )
    # What clips gradients and what optimizers compute is no pass.
    assert not {name for name in first if "norm" in name or "foreach" in name}


def test_losses_of_a_probed_update_are_the_same_to_the_last_bit(make_setup: MakeSetup) -> None:
    of_calls = ("*:activation:norm@step", "*:grad_output:norm@step")
    _, watched = probed(make_setup(workload=workload()), *of_calls, "*:grad:norm", "*:update:norm")
    _, bare = probed(make_setup(workload=workload()))
    assert watched.final == bare.final
    assert is_unwatched()


def test_layer_tables_have_every_call_and_its_backward_pass(make_setup: MakeSetup) -> None:
    record = profile_layers(
        make_setup(workload=workload()), CostSpec(warmup_steps=1, active_steps=2)
    )
    counts = Counter(row.name for row in record.rows if row.kind == "module")
    assert counts == {"maker": 1, "critic.0": 3}
    assert record.calls_are_equal
    assert not {row.name for row in record.rows if "norm" in row.name or "foreach" in row.name}
    modules = {(row.name, row.call): row for row in record.rows if row.kind == "module"}
    assert all(min(row.forward_us) > 0 and min(row.backward_us) > 0 for row in modules.values())
    # Four rows of one product each; backwards the gradient of the weight, and that of an input which
    # has one: only the third call of the critic's.
    assert {row.forward_flops for row in modules.values()} == {8}
    backward = {key: row.backward_flops for key, row in modules.items()}
    of_critic = {("critic.0", 1): 8, ("critic.0", 2): 8, ("critic.0", 3): 16}
    assert backward == {("maker", 1): 8, **of_critic}
    assert set(record.phases_us) == {"forward", "loss", "backward"}
    spent = sum(sum(row.forward_us) for row in record.rows)
    assert spent <= sum(record.phases_us["forward"])
