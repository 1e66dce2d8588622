"""A plain loop around a compiled model."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def regression(size, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=draw)
    return TensorDataset(x, torch.sin(x.sum(1, keepdim=True) / 2) + 0.3 * x[:, :1])


def main():
    parser = argparse.ArgumentParser(description="A compiled network")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true", help="run without a compiler")
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set = regression(4096, 1)
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_x, test_y = regression(512, 2).tensors
    net = nn.Sequential(nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
    net = nn.Sequential(net, nn.Linear(128, 1))
    model = net if args.no_compile else torch.compile(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    losses = []
    for epoch in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            error = F.mse_loss(net(test_x), test_y).item()
        net.train()
        print(f"epoch {epoch}: last loss {losses[-1]:.4f}, test error {error:.4f}")
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
