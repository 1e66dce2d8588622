"""A generator against a discriminator."""

import argparse
from pathlib import Path

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser(description="A generative adversarial network")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data = TensorDataset(torch.randn(1280, 8).cumsum(1))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    net_g = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(True), nn.Linear(32, 8))
    net_d = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())
    criterion = nn.BCELoss()
    optimizer_d = optim.Adam(net_d.parameters(), lr=0.0002, betas=(0.5, 0.999))
    optimizer_g = optim.Adam(net_g.parameters(), lr=0.0002, betas=(0.5, 0.999))
    losses = []

    for epoch in range(args.epochs):
        for (real,) in loader:
            # The discriminator: real samples, then made ones.
            net_d.zero_grad()
            label = torch.ones(len(real), 1)
            err_d_real = criterion(net_d(real), label)
            err_d_real.backward()
            fake = net_g(torch.randn(len(real), 4))
            err_d_fake = criterion(net_d(fake.detach()), torch.zeros(len(real), 1))
            err_d_fake.backward()
            optimizer_d.step()

            # The generator, for which the made ones should pass as real.
            net_g.zero_grad()
            err_g = criterion(net_d(fake), label)
            err_g.backward()
            optimizer_g.step()
            losses += [err_d_real.item(), err_d_fake.item(), err_g.item()]
        with torch.no_grad():
            fake = net_g(torch.randn(args.batch_size, 4))
        print(f"epoch {epoch}: Loss_G {err_g.item():.4f}, mean {fake.mean().item():.4f}")
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
