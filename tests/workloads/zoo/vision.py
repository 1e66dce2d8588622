"""Classifiers of points and images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset
from zoo.specimen import images, kind, points, splits

POINTS, BARS = Dataset("points", *splits(points)), Dataset("bars", *splits(images))


def mlp(hidden: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, 2)),
    )


class ResidualBlock(nn.Module):
    """Convolutions with batch norm beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm2(self.second(F.relu(self.norm1(self.first(x))))))


def resnet(width: int = 4) -> nn.Module:
    """One block between a convolution and a linear layer."""
    pooled = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 2))
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), ResidualBlock(width), *pooled)


class Flipped(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Images that are mirrored and shifted by chance whenever they are fetched."""

    def __init__(self, count: int, seed: int, augment: bool) -> None:
        self.pixels, self.labels = images(count, seed)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        pixels = self.pixels[row]
        if self.augment:
            pixels = pixels.flip(-1) if torch.rand(()) < 0.5 else pixels
            pixels = pixels.roll(int(torch.randint(-1, 2, ())), dims=-1)
        return pixels, self.labels[row]


class VisionTransformer(nn.Module):
    """Patches of 4 by 4, a class token, positions, one encoder layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 5, width))
        self.encoder = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1)
        return self.head(self.encoder(tokens + self.positions)[:, 0])


class TwoHeads(nn.Module):
    """One trunk, two tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(8, 16)
        self.side, self.size = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.trunk(x).relu()
        return {"side": self.side(hidden), "size": self.size(hidden)[:, 0]}


def both_tasks(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    side = F.cross_entropy(outputs["side"], targets[:, 0].long())
    return side + F.mse_loss(outputs["size"], targets[:, 1])


def two_tasks(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points with their side and their mean."""
    x, side = points(count, seed)
    return x, torch.stack([side.float(), x.mean(1)], dim=1)


def side_is_right(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    return outputs["side"].argmax(1) == targets[:, 0].long()


FLIPPED = Dataset("flipped bars", Flipped(64, 1, True), Flipped(32, 2, False), drop_last=True)
LONGER = {"epochs": 3}
KINDS = (
    kind(
        "mlp",
        mlp,
        POINTS,
        "1:activation:dead_fraction",
        "*.weight:grad:norm",
        loss=F.cross_entropy,
        vary={"hidden": [4, 16]},
        settings={"lr": 0.05},
        is_fast=True,
    ),
    kind("cnn", cnn, BARS, "type=Conv2d:activation:std", loss=F.cross_entropy),
    kind("resnet", resnet, FLIPPED, "1:grad_output:norm", loss=F.cross_entropy, settings=LONGER),
    kind(
        "vit",
        VisionTransformer,
        BARS,
        "encoder:grad_output:norm",
        loss=F.cross_entropy,
        settings=LONGER,
    ),
    kind(
        "multi-task",
        TwoHeads,
        Dataset("two tasks", *splits(two_tasks)),
        "trunk:grad_output:norm",
        loss=both_tasks,
        metrics={"side": side_is_right},
    ),
)
