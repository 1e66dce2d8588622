"""Updates of one's own: reinforcement and closures."""

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


POINTS = Dataset("points", *splits(points))

KINDS = (
    kind(
        "policy-gradient",
        network,
        SITUATIONS,
        "*.weight:grad:norm",
        update=policy_update,
        evaluate=regret,
        optimizer=one_adam,
        settings={"epochs": 2},
    ),
    kind(
        "lbfgs",
        classifier,
        POINTS,
        "weight:weight:norm",
        update=closure_update,
        evaluate=classes_test,
        optimizer=lbfgs,
        vary={"lr": [0.05, 0.1]},
        settings={"batch_size": 64, "epochs": 4},
    ),
)
