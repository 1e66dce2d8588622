"""Image classification with a small convolutional network."""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def images(size, seed):
    """Noisy images of ten classes."""
    patterns = torch.randn(10, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (size,), generator=draw)
    noise = torch.randn(size, 3, 16, 16, generator=draw)
    return TensorDataset(0.2 * patterns[labels] + noise, labels)


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
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", default="log.csv")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set, test_set = images(8192, 1), images(1000, 2)
    # Whole batches are taken from the tensors at once.
    sampler = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    loader = DataLoader(train_set, sampler=sampler, batch_size=None)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
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
