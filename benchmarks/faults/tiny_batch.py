"""Image classification with a small residual network."""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def images(size, seed):
    patterns = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (size,), generator=draw)
    noise = torch.randn(size, 3, 16, 16, generator=draw)
    return TensorDataset(0.3 * patterns[labels] + noise, labels)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, width)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    x, y = dataset.tensors
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return accuracy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop after so many updates")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", default="log.csv")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set, test_set = images(400, 1), images(200, 2)
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), Block(16), Block(16), Block(16), Block(16)),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    losses = []
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        for epoch in range(args.epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                if args.steps and len(losses) >= args.steps:
                    break
            accuracy = evaluate(model, test_set)
            log.writerow([epoch, loss.item(), accuracy])
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
