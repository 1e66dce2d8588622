"""Updates of one's own: reinforcement, closures, layers that train themselves."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset
from zoo.specimen import drawn, kind, points, splits

ARMS = 4


class Situations:
    """Batches of situations; the best action is the largest of the first four numbers."""

    def __init__(self, batches: int, seed: int) -> None:
        self.batches, self.seed = batches, seed

    def __iter__(self) -> Iterator[Tensor]:
        draw = drawn(self.seed)
        for _ in range(self.batches):
            yield torch.randn(16, 6, generator=draw)


SITUATIONS = Dataset("situations", Situations(30, 1), Situations(4, 2))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, ARMS))


def reward(situation: Tensor, action: Tensor) -> Tensor:
    """How good an action is where it is taken."""
    return situation[:, :ARMS].gather(1, action[:, None])[:, 0]


def one_adam(model: nn.Module, settings: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=settings.start_lr)


def regret(model: nn.Module, situation: Tensor) -> dict[str, Tensor]:
    """What the best action would have given beyond the greedy one."""
    taken = reward(situation, model(situation).argmax(1))
    return {"loss": (situation[:, :ARMS].amax(1) - taken).mean(), "reward": taken.mean()}


def policy_update(ctx: Any, situation: Tensor) -> dict[str, Tensor]:
    """REINFORCE with a running baseline."""
    policy = torch.distributions.Categorical(logits=ctx.model(situation))
    action = policy.sample()
    got = reward(situation, action)
    baseline = ctx.state.get("baseline", torch.zeros(()))
    ctx.state["baseline"] = 0.9 * baseline + 0.1 * got.mean()
    ctx.optimizer.zero_grad()
    ctx.backward(-(policy.log_prob(action) * (got - baseline)).mean())
    ctx.optimizer.step()
    missed = situation[:, :ARMS].amax(1) - got
    return {"loss": missed.mean(), "reward": got.mean()}


def replay_update(ctx: Any, situation: Tensor) -> dict[str, Tensor]:
    """Acts, remembers, and learns from what is drawn of the memory."""
    with torch.no_grad():
        greedy = ctx.model(situation).argmax(1)
    any_arm = torch.randint_like(greedy, ARMS)
    tried = torch.where(torch.rand(len(greedy), device=greedy.device) < 0.3, any_arm, greedy)
    memory = ctx.state.setdefault("memory", [])
    memory.append((situation, tried, reward(situation, tried)))
    del memory[:-20]
    situations, actions, rewards = (torch.cat(part) for part in zip(*memory, strict=True))
    rows = torch.randint(len(actions), (32,), device=actions.device)
    values = ctx.model(situations[rows]).gather(1, actions[rows, None])[:, 0]
    ctx.optimizer.zero_grad()
    loss = F.smooth_l1_loss(values, rewards[rows])
    ctx.backward(loss)
    ctx.optimizer.step()
    return {"loss": loss, "reward": rewards[-len(tried) :].mean()}


def classifier() -> nn.Module:
    """A linear model: LBFGS finds its best in a few updates."""
    return nn.Linear(8, 2)


def lbfgs(model: nn.Module, settings: Any) -> torch.optim.Optimizer:
    """Asks for the loss again and again within an update."""
    return torch.optim.LBFGS(model.parameters(), lr=settings.start_lr, max_iter=4)


def closure_update(ctx: Any, batch: tuple[Tensor, Tensor]) -> Any:

    def closure() -> Tensor:
        ctx.optimizer.zero_grad()
        loss = F.cross_entropy(ctx.model(batch[0]), batch[1])
        ctx.backward(loss)
        return loss

    return ctx.optimizer.step(closure)


def classes_test(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


class ForwardForward(nn.Module):
    """Every layer tells right pairs of point and class from wrong ones, by the size of what it gives."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(10, width), nn.Linear(width, width)])

    def goodness(self, x: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, nn.Module]]:
        """Of every layer; the next one sees the direction only, and no gradient flows back."""
        x = torch.cat([x, 2 * F.one_hot(labels, 2)], 1)
        for layer in self.layers:
            x = layer(x.detach()).relu()
            yield x.square().mean(1), layer
            x = F.normalize(x, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """The goodness of each class, summed over layers."""
        each = [torch.full((len(x),), label, device=x.device) for label in range(2)]
        sums = [sum(good for good, _ in self.goodness(x, labels)) for labels in each]
        return torch.stack(sums, 1)  # type: ignore[arg-type]


def adam_of_each(model: Any, settings: Any) -> dict[str, torch.optim.Optimizer]:
    layers = enumerate(model.layers)
    return {str(n): torch.optim.Adam(one.parameters(), lr=settings.start_lr) for n, one in layers}


def layerwise_update(ctx: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Right pairs up, wrong pairs down, in every layer."""
    x, labels = batch
    pairs = zip(ctx.model.goodness(x, labels), ctx.model.goodness(x, 1 - labels), strict=True)
    total = torch.zeros(())
    for optimizer, ((right, _), (wrong, _)) in zip(ctx.optimizers.values(), pairs, strict=True):
        loss = F.softplus(torch.cat([0.5 - right, wrong - 0.5])).mean()
        optimizer.zero_grad()
        ctx.backward(loss)
        optimizer.step()
        total = total + loss.detach()
    return total


POINTS = Dataset("points", *splits(points))

KINDS = (
    kind(
        "policy-gradient",
        model=network,
        data=SITUATIONS,
        update=policy_update,
        evaluate=regret,
        optimizer=one_adam,
        settings={"epochs": 2},
        probes=("*.weight:grad:norm",),
    ),
    kind(
        "q-learning",
        model=network,
        data=SITUATIONS,
        update=replay_update,
        evaluate=regret,
        optimizer=one_adam,
        probes=("*.weight:grad:norm",),
    ),
    kind(
        "lbfgs",
        model=classifier,
        data=POINTS,
        update=closure_update,
        evaluate=classes_test,
        optimizer=lbfgs,
        vary={"lr": [0.05, 0.1]},
        settings={"batch_size": 64, "epochs": 4},
        probes=("weight:weight:norm",),
    ),
    kind(
        "forward-forward",
        model=ForwardForward,
        data=POINTS,
        update=layerwise_update,
        evaluate=classes_test,
        optimizer=adam_of_each,
        settings={"epochs": 2},
        probes=("layers.0.weight:weight:norm",),
    ),
)
