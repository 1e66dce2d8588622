"""A small residual network with augmentation: images are mirrored and shifted whenever they are fetched.

trainlab run examples/resnet.py:workload --vary data.augment=false,true --seeds 3
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from trainlab import Dataset, Split, Workload
from trainlab.data.fetch import load_images


class Images(TorchDataset):
    """A torch `Dataset`, as anybody has it; torch's own draws are repeated with the seed of the trial."""

    def __init__(self, split: Split, count: int, augment: bool) -> None:
        self.pixels = split.inputs[:count].float() / 255
        self.labels = split.targets[:count]
        self.augment = augment

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        pixels = self.pixels[row]
        if self.augment:
            pixels = pixels.flip(-1) if torch.rand(()) < 0.5 else pixels
            pixels = pixels.roll(int(torch.randint(-2, 3, ())), dims=-1)
        return pixels, self.labels[row]


def data(choice: str, augment: bool = True) -> Dataset:
    """1,000 images to learn from; the test is never augmented. `augment` can be varied: `data.augment`."""
    images = load_images("fashion-mnist", "bundled" if choice == "auto" else choice)
    return Dataset(
        "fashion-1000",
        train=Images(images.train, 1000, augment),
        test=Images(images.test, 500, augment=False),
        drop_last=True,  # a last batch of one sample has no variance for batch norm
    )


class Block(nn.Module):
    """Two convolutions with batch norm beside a shortcut, which halves the picture where it must."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


def model(width: int = 8) -> nn.Module:
    """Two blocks, from 28 by 28 pixels to 7 by 7, then the mean of each channel."""
    return nn.Sequential(
        *(Block(1, width, stride=2), Block(width, 2 * width, stride=2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)),
    )


workload = Workload(
    name="resnet",
    model=model,
    data=data,
    loss=F.cross_entropy,
    defaults={"epochs": 4, "batch_size": 32, "optimizer": "adam", "lr": 0.01},
)
