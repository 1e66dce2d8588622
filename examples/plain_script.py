"""A training script that knows nothing of trainlab: two spirals, told apart by a small network.

python plain_script.py --epochs 3
trainlab watch plain_script.py --epochs 3 --metric 'accuracy=accuracy ([0-9.]+)%'
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def spirals(count: int, seed: int) -> TensorDataset:
    """Points of two interleaved spirals with a little noise, and which spiral each is on."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    turn = torch.rand(count, generator=draw).sqrt() * 3 * math.pi
    angle = turn + math.pi * labels
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 10
    return TensorDataset(points + 0.02 * torch.randn(count, 2, generator=draw), labels)


def test(model: nn.Module, loader: "DataLoader[tuple[Tensor, ...]]") -> float:
    """The share of points whose spiral is found."""
    model.eval()
    correct = count = 0
    with torch.no_grad():
        for points, labels in loader:
            correct += int((model(points).argmax(dim=1) == labels).sum())
            count += len(labels)
    return correct / count


def main() -> None:
    """Trains, and prints a line after every epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    train_loader = DataLoader(spirals(2000, seed=1), batch_size=asked.batch_size)
    test_loader = DataLoader(spirals(500, seed=2), batch_size=500)
    model = nn.Sequential(
        *(nn.Linear(2, asked.hidden), nn.ReLU()),
        *(nn.Linear(asked.hidden, asked.hidden), nn.ReLU()),
        nn.Linear(asked.hidden, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=asked.lr)
    for epoch in range(1, asked.epochs + 1):
        model.train()
        for points, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(points), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: accuracy {100 * test(model, test_loader):.1f}%")
    torch.save(model.state_dict(), "spirals.pt")


if __name__ == "__main__":
    main()
