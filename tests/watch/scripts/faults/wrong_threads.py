"""Forecasts of a noisy signal with a small one-dimensional convolutional network."""

import argparse
import csv
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def signals(size, seed):
    draw = torch.Generator().manual_seed(seed)
    phase = 6.28 * torch.rand(size, 1, generator=draw)
    pace = 0.1 + 0.2 * torch.rand(size, 1, generator=draw)
    waves = torch.sin(phase + pace * torch.arange(65)) + 0.1 * torch.randn(size, 65, generator=draw)
    return TensorDataset(waves[:, None, :-1], waves[:, -1:])


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
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=max(8, 2 * os.cpu_count()))
    parser.add_argument("--log", default="log.csv")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    train_set, test_set = signals(4096, 1), signals(512, 2)
    sampler = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    loader = DataLoader(train_set, sampler=sampler, batch_size=None)
    model = nn.Sequential(
        *(nn.Conv1d(1, 24, 5, padding=2), nn.Tanh(), nn.Conv1d(24, 24, 5, padding=2), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(24 * 64, 1)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
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
