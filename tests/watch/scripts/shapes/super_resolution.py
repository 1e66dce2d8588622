"""Small images made larger by a sub-pixel convolution."""

import argparse
from math import log10
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Smooth random pictures and their reduced copies, made when they are asked for."""

    def __init__(self, size, seed, upscale_factor):
        self.size = size
        self.seed = seed
        self.upscale_factor = upscale_factor

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(self.seed * 100_000 + index)
        coarse = torch.rand(1, 1, 6, 6, generator=draw)
        picture = F.interpolate(coarse, size=32, mode="bicubic").clamp(0, 1)[0]
        return F.avg_pool2d(picture, self.upscale_factor), picture


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 16, 3, padding=1)
        self.conv4 = nn.Conv2d(16, upscale_factor**2, 3, padding=1)
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        for conv in (self.conv1, self.conv2, self.conv3):
            nn.init.orthogonal_(conv.weight, nn.init.calculate_gain("relu"))
        nn.init.orthogonal_(self.conv4.weight)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return self.pixel_shuffle(self.conv4(x))


def main():
    parser = argparse.ArgumentParser(description="Super resolution")
    parser.add_argument("--upscale-factor", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--test-batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--threads", type=int, default=2, help="processes that load data")
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()
    print(args)

    torch.manual_seed(args.seed)
    train_set = Pictures(320, 1, args.upscale_factor)
    test_set = Pictures(100, 2, args.upscale_factor)
    workers = {"num_workers": args.threads}
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, **workers)
    test_loader = DataLoader(test_set, batch_size=args.test_batch_size, **workers)

    print("===> Building model")
    model = Net(args.upscale_factor)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for epoch in range(1, args.epochs + 1):
        epoch_loss = 0.0
        for iteration, (small, large) in enumerate(train_loader, 1):
            optimizer.zero_grad()
            loss = criterion(model(small), large)
            epoch_loss += loss.item()
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
            print(f"===> Epoch[{epoch}]({iteration}/{len(train_loader)}): Loss: {loss.item():.4f}")
        print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / len(train_loader):.4f}")

        with torch.no_grad():
            errors = [criterion(model(small), large).item() for small, large in test_loader]
        psnr = sum(10 * log10(1 / error) for error in errors) / len(errors)
        print(f"===> Avg. PSNR: {psnr:.4f} dB")

        path = f"model_epoch_{epoch}.pth"
        torch.save(model, path)
        print(f"Checkpoint saved to {path}")
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
