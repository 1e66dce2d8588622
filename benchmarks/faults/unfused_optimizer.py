"""Regression with a deep residual network of small layers."""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return x + self.scale * torch.relu(self.inner(x))


def table(size, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 128, generator=draw)
    return TensorDataset(x, torch.sin(x[:, :4].sum(1, keepdim=True)) + 0.5 * x[:, 4:5])


@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    x, y = dataset.tensors
    error = F.mse_loss(model(x), y).item()
    model.train()
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop after so many updates")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", default="log.csv")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set, test_set = table(2048, 1), table(512, 2)
    sampler = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    loader = DataLoader(train_set, sampler=sampler, batch_size=None)
    model = nn.Sequential(*(Residual(128) for _ in range(24)), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False, fused=False)
    losses = []
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        for epoch in range(args.epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                if args.steps and len(losses) >= args.steps:
                    break
            error = evaluate(model, test_set)
            log.writerow([epoch, loss.item(), error])
            print(f"epoch {epoch}: loss {loss.item():.4f}, test error {error:.4f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
