"""Classification of points, with the accuracy always at hand."""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def points(size, seed):
    centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (size,), generator=draw)
    return TensorDataset(0.6 * centres[labels] + torch.randn(size, 64, generator=draw), labels)


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
    parser.add_argument("--eval-interval", type=int, default=10, help="updates between evaluations")
    parser.add_argument("--log", default="log.csv")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set = points(8000, 1)
    sampler = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    train_loader = DataLoader(train_set, sampler=sampler, batch_size=None)
    val_loader = DataLoader(points(1500, 2), batch_size=250)
    model = nn.Sequential(
        *(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    best, losses = 0.0, []
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        for epoch in range(args.epochs):
            for x, y in train_loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                if len(losses) % args.eval_interval == 0:
                    accuracy = evaluate(model, val_loader)
                    best = max(best, accuracy)
                    log.writerow([epoch, len(losses), loss.item(), accuracy])
                if args.steps and len(losses) >= args.steps:
                    break
            print(f"epoch {epoch}: loss {loss.item():.4f}, best accuracy {best:.3f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
