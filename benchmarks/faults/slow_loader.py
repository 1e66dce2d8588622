"""Classification of sensor readings kept as lines of text."""

import argparse
import csv
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Readings(Dataset):
    """A line per sample: 128 numbers and the class."""

    def __init__(self, size, seed, jitter=0.0):
        centres = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
        draw = torch.Generator().manual_seed(seed)
        labels = torch.randint(8, (size,), generator=draw)
        points = 0.4 * centres[labels] + torch.randn(size, 128, generator=draw)
        self.lines = [
            ",".join([*(f"{value:.4f}" for value in point), str(label)])
            for point, label in zip(points.tolist(), labels.tolist(), strict=True)
        ]
        self.jitter = jitter

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        *words, label = self.lines[index].split(",")
        values = [float(word) for word in words]
        mean = sum(values) / len(values)
        scale = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        values = [(value - mean) / scale + random.gauss(0, self.jitter) for value in values]
        return torch.tensor(values), int(label)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop after so many updates")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", default="log.csv")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    random.seed(args.seed)
    train_loader = DataLoader(
        Readings(6400, 1, jitter=0.1), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    test_loader = DataLoader(Readings(320, 2), batch_size=args.batch_size)
    model = nn.Sequential(
        *(nn.Linear(128, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 8)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    losses = []
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        for epoch in range(args.epochs):
            for x, y in train_loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                if args.steps and len(losses) >= args.steps:
                    break
            accuracy = evaluate(model, test_loader)
            log.writerow([epoch, loss.item(), accuracy])
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
