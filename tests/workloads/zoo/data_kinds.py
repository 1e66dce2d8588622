"""Batches, data sets and metrics of many forms."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchmetrics.classification import MulticlassAUROC

from trainlab import Dataset, OfWholeSet, Split
from zoo.specimen import drawn, kind, points, splits
from zoo.vision import mlp

NODES, FEATURES = 6, 4


def graphs(count: int, seed: int) -> list[dict[str, Tensor]]:
    """Small graphs; a node is to be told by the mean of its neighbours."""
    draw = drawn(seed)
    edges = torch.rand(count, NODES, NODES, generator=draw) < 0.4
    adjacency = (edges | edges.transpose(1, 2) | torch.eye(NODES).bool()).float()
    adjacency = adjacency / adjacency.sum(2, keepdim=True)
    nodes = torch.randn(count, NODES, FEATURES, generator=draw)
    labels = ((adjacency @ nodes).sum(2) > 0).long()
    rows = zip(nodes, adjacency, labels, strict=True)
    return [dict(zip(("nodes", "adjacency", "labels"), row, strict=True)) for row in rows]


class GraphNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, width), nn.Linear(width, 2)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        hidden = (adjacency @ self.first(nodes)).relu()
        return self.last(hidden)


def graph_step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    scores = model(batch["nodes"], batch["adjacency"])
    return F.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())


def ratings(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Who rates what, and how."""
    draw, tastes = drawn(seed), torch.randn(2, 20, 3, generator=drawn(0))
    pairs = torch.randint(20, (count, 2), generator=draw)
    return pairs, (tastes[0][pairs[:, 0]] * tastes[1][pairs[:, 1]]).sum(1)


class Recommender(nn.Module):
    """Two tables whose gradients are sparse."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.users, self.things = (nn.Embedding(20, width, sparse=True) for _ in range(2))

    def forward(self, pairs: Tensor) -> Tensor:
        return (self.users(pairs[:, 0]) * self.things(pairs[:, 1])).sum(1)


def line(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A number for every point."""
    x, _ = points(count, seed)
    return x, x @ torch.linspace(-1, 1, 8)


def regressor() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))


def rmse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of the whole set: no mean of the batches' own."""
    return (outputs - targets).square().mean().sqrt()


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Samples one after the other, without a length."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(*points(self.count, self.seed), strict=True)


@dataclass
class Record:
    """A batch with a name for each of its parts, one of which is no tensor."""

    x: Tensor
    label: Tensor
    names: list[str]


def as_record(samples: list[tuple[Tensor, Tensor]]) -> Record:
    """With a name for every sample."""
    x, labels = map(torch.stack, zip(*samples, strict=True))
    return Record(x, labels, names=[f"sample {n}" for n in range(len(samples))])


def named_step(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch.x), batch.label)


LOADER = DataLoader(TensorDataset(*points(160, 1)), batch_size=4, shuffle=True, num_workers=2)
SAMPLES = TensorDataset(*points(64, 1)), TensorDataset(*points(32, 2))
POINTS = Dataset("points", *splits(points))

KINDS = (
    kind(
        "graph-convolution",
        GraphNet,
        Dataset("graphs", graphs(64, 1), graphs(32, 2)),
        "first:grad_output:norm",
        step=graph_step,
    ),
    kind(
        "sparse-embeddings",
        Recommender,
        Dataset("ratings", *splits(ratings, 200)),
        "users:activation:std",
        loss=F.mse_loss,
        metrics={},
        settings={"optimizer": "sgd", "epochs": 2},
        vary={"lr": [0.2, 0.5]},
    ),
    kind(
        "regression",
        regressor,
        Dataset("line", *splits(line)),
        "2:activation:mean",
        loss=F.mse_loss,
        metrics={"rmse": OfWholeSet(rmse, higher_is_better=False)},
    ),
    kind(
        "torchmetrics",
        mlp,
        POINTS,
        "1:activation:dead_fraction",
        loss=F.cross_entropy,
        metrics={"auroc": MulticlassAUROC(2)},
    ),
    kind(
        "iterable-dataset",
        mlp,
        Dataset("stream", Stream(64, 1), Stream(32, 2)),
        "0.weight:grad:norm",
        loss=F.cross_entropy,
    ),
    kind(
        "loader-with-workers",
        mlp,
        Dataset("points", LOADER, Split(*points(32, 2))),
        "0.weight:grad:norm",
        loss=F.cross_entropy,
        vary={"batch_size": [8, 16]},
        settings={"lr": 0.02},
    ),
    kind(
        "dataclass-batch",
        mlp,
        Dataset("points", *SAMPLES, collate_fn=as_record),
        "0.weight:grad:norm",
        step=named_step,
    ),
)
