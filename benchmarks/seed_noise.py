"""Draws the seed noise of both labs' cells: many seeds of each cell trained side by side on a GPU.

    python -m benchmarks.seed_noise DATA_FOLDER OUT.csv [--seeds 64]

Writes `seed_noise.csv`, which `benchmarks.verdicts` draws real noise from: one line per lab, data, cell
and seed with the metrics of the last epoch. The seeds of a cell are lanes of one stacked model: every
parameter has a leading axis of seeds, each seed has its own initial weights, data order and dropout, and
the optimizers, which work element by element, treat the lanes apart. The same seed starts from the same
weights and visits the data in the same order in every cell, as in trainlab. `DATA_FOLDER` holds `mnist`
and `fashion-mnist` with the four IDX files of each; the bundled subset is taken from the package.
"""

import argparse
import csv
import gzip
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

BUNDLED = Path(__file__).parent.parent / "src/trainlab/data/bundled"
Parameters = list[Tensor]
Forward = Callable[[Parameters, Tensor, bool], Tensor]
"""Parameters, images [lanes, batch, 28, 28], whether training → log-probabilities [lanes, batch, 10]."""


@dataclass(frozen=True)
class Cell:
    """One setting of a lab."""

    name: str
    batch_size: int
    lr: float
    optimizer: str
    resets: bool = True


FASHION = (
    Cell("base", 32, 1e-3, "adam"),
    Cell("batch_size=16", 16, 1e-3, "adam"),
    Cell("batch_size=64", 64, 1e-3, "adam"),
    Cell("lr=0.01", 32, 1e-2, "adam"),
    Cell("lr=0.0001", 32, 1e-4, "adam"),
    Cell("zero_grad=false", 32, 1e-3, "adam", resets=False),
    Cell("optimizer=sgd", 32, 1e-3, "sgd"),
)
MNIST = tuple(Cell(f"batch_size={size}", size, 1.0, "adadelta") for size in (1, 16, 64))


def mlp(parameters: Parameters, images: Tensor, _training: bool) -> Tensor:
    """784 → 128 → 10."""
    w1, b1, w2, b2 = parameters
    hidden = torch.baddbmm(b1.unsqueeze(1), images.flatten(2), w1).relu()
    return torch.baddbmm(b2.unsqueeze(1), hidden, w2).log_softmax(-1)


def cnn(parameters: Parameters, images: Tensor, training: bool) -> Tensor:
    """PyTorch's MNIST example; the lanes are groups of a convolution."""
    c1, d1, c2, d2, w1, b1, w2, b2 = parameters
    lanes, batch = images.shape[:2]
    x = images.transpose(0, 1)
    x = F.conv2d(x, c1.flatten(0, 1), d1.flatten(), groups=lanes).relu()
    x = F.conv2d(x, c2.flatten(0, 1), d2.flatten(), groups=lanes).relu()
    x = F.dropout(F.max_pool2d(x, 2), 0.25, training)
    x = x.view(batch, lanes, -1).transpose(0, 1)
    x = F.dropout(torch.baddbmm(b1.unsqueeze(1), x, w1).relu(), 0.5, training)
    return torch.baddbmm(b2.unsqueeze(1), x, w2).log_softmax(-1)


SHAPES = {
    mlp: ((784, (784, 128)), (784, (128,)), (128, (128, 10)), (128, (10,))),
    cnn: (
        *((9, (32, 1, 3, 3)), (9, (32,)), (288, (64, 32, 3, 3)), (288, (64,))),
        *((9216, (9216, 128)), (9216, (128,)), (128, (128, 10)), (128, (10,))),
    ),
}
"""Inputs of a unit, which bound its initial weights, and shape, by parameter."""


def initial(forward: Forward, seeds: list[int]) -> Parameters:
    """torch's default for these layers: uniform within one over the root of the inputs."""
    stacks: list[list[Tensor]] = [[] for _ in SHAPES[forward]]
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for stack, (inputs, shape) in zip(stacks, SHAPES[forward], strict=True):
            stack.append((torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(inputs))
    return [torch.stack(stack).cuda().requires_grad_() for stack in stacks]


def optimizer_of(cell: Cell, parameters: Parameters) -> torch.optim.Optimizer:
    """As the labs make it; fused where torch can."""
    if cell.optimizer == "adadelta":
        return torch.optim.Adadelta(parameters, lr=cell.lr, foreach=True)
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[cell.optimizer]
    return kind(parameters, lr=cell.lr, fused=True)


def orders(seeds: list[int], epoch: int, num_samples: int) -> Tensor:
    """The order of the data of every seed."""
    generators = (torch.Generator().manual_seed(1000 * seed + epoch) for seed in seeds)
    return torch.stack([torch.randperm(num_samples, generator=g) for g in generators]).cuda()


Data = tuple[Tensor, Tensor, Tensor, Tensor]


def trained(
    forward: Forward, cell: Cell, data: Data, epochs: int, seeds: list[int]
) -> Iterator[dict[str, float]]:
    """The metrics of the last epoch of every seed."""
    images, labels, test_images, test_labels = data
    torch.manual_seed(cell.batch_size)
    parameters = initial(forward, seeds)
    optimizer = optimizer_of(cell, parameters)
    for epoch in range(epochs):
        order = orders(seeds, epoch, len(images))
        total = torch.zeros(len(seeds), device="cuda")
        for rows in order.split(cell.batch_size, dim=1):
            scores = forward(parameters, images[rows], True)
            each = -scores.gather(-1, labels[rows].unsqueeze(-1)).squeeze(-1)
            if cell.resets:
                optimizer.zero_grad()
            each.mean(dim=1).sum().backward()
            optimizer.step()
            total += each.detach().sum(dim=1)
    loss, right = torch.zeros(2, len(seeds), device="cuda")
    with torch.no_grad():
        for batch, expected in zip(test_images.split(250), test_labels.split(250), strict=True):
            scores = forward(parameters, batch.expand(len(seeds), *batch.shape), False)
            loss -= scores.gather(-1, expected.expand(len(seeds), -1).unsqueeze(-1)).sum((1, 2))
            right += (scores.argmax(-1) == expected).sum(dim=1)
    for index in range(len(seeds)):
        yield {
            "test_accuracy": round(right[index].item() / len(test_images), 6),
            "test_loss": round(loss[index].item() / len(test_images), 6),
            "train_loss": round(total[index].item() / len(images), 6),
        }


def read(folder: Path, mean: float, std: float) -> Data:
    """The four IDX files, normalised, on the GPU."""

    def part(name: str) -> Tensor:
        raw = gzip.decompress(next(folder.glob(f"{name}*.gz")).read_bytes())
        dimensions = raw[3]
        sizes = np.frombuffer(raw, ">i4", dimensions, 4)
        values = np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)
        return torch.from_numpy(values.copy()).cuda()

    train, test = part("train-images"), part("t10k-images")
    scaled = [(images.float() / 255 - mean) / std for images in (train, test)]
    return (
        *(scaled[0], part("train-labels").long()),
        *(scaled[1], part("t10k-labels").long()),
    )


def main() -> None:
    """Both labs, on all data and on the bundled subset."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=64)
    asked = parser.parse_args()
    seeds = list(range(1, asked.seeds + 1))
    labs = (
        ("fashion-lab", "fashion-mnist", mlp, FASHION, 5, (0.5, 0.5)),
        ("mnist-lab", "mnist", cnn, MNIST, 1, (0.1307, 0.3081)),
    )
    fields = ("lab", "data", "cell", "seed", "test_accuracy", "test_loss", "train_loss")
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for source, folder in (("bundled", BUNDLED), ("full", asked.data)):
            for lab, name, forward, cells, epochs, scale in labs:
                data = read(folder / name, *scale)
                for cell in cells:
                    values = list(trained(forward, cell, data, epochs, seeds))
                    for seed, metrics in zip(seeds, values, strict=True):
                        where = {"lab": lab, "data": source, "cell": cell.name, "seed": seed}
                        writer.writerow(where | metrics)
                    file.flush()
                    accuracy = [value["test_accuracy"] for value in values]
                    print(
                        source,
                        lab,
                        cell.name,
                        f"{np.mean(accuracy):.4f} ± {np.std(accuracy):.4f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
