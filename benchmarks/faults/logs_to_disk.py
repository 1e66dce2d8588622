"""Classification of points that must be able to go on after a crash."""

import argparse
import csv
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def points(size, seed):
    centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (size,), generator=draw)
    return TensorDataset(0.5 * centres[labels] + torch.randn(size, 64, generator=draw), labels)


def keep(folder, log, step, loss, model, optimizer):
    """The state of training and a histogram of every weight, safe on the disk."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with (folder / "last.pt").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    writer = csv.writer(log)
    for name, weight in model.named_parameters():
        writer.writerow([step, loss.item(), name, *torch.histc(weight.detach(), 30).tolist()])
    log.flush()
    os.fsync(log.fileno())


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
    parser.add_argument("--output", default="output")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set, test_set = points(8192, 1), points(1000, 2)
    sampler = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    loader = DataLoader(train_set, sampler=sampler, batch_size=None)
    model = nn.Sequential(
        *(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    folder = Path(args.output)
    folder.mkdir(exist_ok=True)
    losses = []
    with (folder / "weights.csv").open("w", newline="") as log:
        for epoch in range(args.epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                keep(folder, log, len(losses), loss, model, optimizer)
                if args.steps and len(losses) >= args.steps:
                    break
            accuracy = evaluate(model, test_set)
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
