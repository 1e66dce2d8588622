"""A convolutional generator against a discriminator."""

import argparse
from pathlib import Path

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, image):
        return self.main(image).view(-1)


def weights_init(module):
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def rings(size):
    draw = torch.Generator().manual_seed(1)
    radius = 3 + 4 * torch.rand(size, 1, 1, generator=draw)
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    distance = ((rows - 7.5) ** 2 + (columns - 7.5) ** 2).sqrt()
    return TensorDataset((2 * torch.exp(-((distance - radius) ** 2)) - 1).unsqueeze(1))


def main():
    parser = argparse.ArgumentParser(description="A generative adversarial network")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--nz", type=int, default=32)
    parser.add_argument("--ngf", type=int, default=16)
    parser.add_argument("--ndf", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.0002)
    parser.add_argument("--beta1", type=float, default=0.5)
    parser.add_argument("--dry-run", action="store_true", help="one batch per epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    loader = DataLoader(rings(1280), batch_size=args.batch_size, shuffle=True, drop_last=True)
    net_g = Generator(args.nz, args.ngf)
    net_d = Discriminator(args.ndf)
    net_g.apply(weights_init)
    net_d.apply(weights_init)
    criterion = nn.BCELoss()
    fixed_noise = torch.randn(args.batch_size, args.nz, 1, 1)
    betas = (args.beta1, 0.999)
    optimizer_d = optim.Adam(net_d.parameters(), lr=args.lr, betas=betas)
    optimizer_g = optim.Adam(net_g.parameters(), lr=args.lr, betas=betas)
    losses = []

    for epoch in range(args.epochs):
        for i, (real,) in enumerate(loader):
            # The discriminator: real images, then made ones.
            net_d.zero_grad()
            label = torch.ones(len(real))
            output = net_d(real)
            err_d_real = criterion(output, label)
            err_d_real.backward()
            d_x = output.mean().item()

            fake = net_g(torch.randn(len(real), args.nz, 1, 1))
            label.fill_(0)
            output = net_d(fake.detach())
            err_d_fake = criterion(output, label)
            err_d_fake.backward()
            optimizer_d.step()

            # The generator, for which the made ones should pass as real.
            net_g.zero_grad()
            label.fill_(1)
            output = net_d(fake)
            err_g = criterion(output, label)
            err_g.backward()
            optimizer_g.step()

            losses += [err_d_real.item(), err_d_fake.item(), err_g.item()]
            if i % args.log_interval == 0:
                loss_d = err_d_real + err_d_fake
                print(
                    f"[{epoch}/{args.epochs}][{i}/{len(loader)}] Loss_D: {loss_d.item():.4f} "
                    f"Loss_G: {err_g.item():.4f} D(x): {d_x:.4f} D(G(z)): {output.mean().item():.4f}"
                )
            if args.dry_run:
                break
        with torch.no_grad():
            fake = net_g(fixed_noise)
        print(f"fixed noise: mean {fake.mean().item():.4f}, spread {fake.std().item():.4f}")
        torch.save(net_g.state_dict(), f"netG_epoch_{epoch}.pth")
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
