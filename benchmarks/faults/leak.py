"""Image classification that also returns features, to be drawn later."""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def images(size, seed):
    patterns = torch.randn(10, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (size,), generator=draw)
    noise = torch.randn(size, 1, 24, 24, generator=draw)
    return TensorDataset(0.2 * patterns[labels] + noise, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, stride=1, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 6 * 6, 10)

    def forward(self, x):
        features = F.relu(self.conv1(x))
        x = F.relu(self.conv2(F.max_pool2d(features, 4)))
        return self.fc(x.flatten(1)), features


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x)[0].argmax(1) == y).sum().item() for x, y in loader)
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
    train_loader = DataLoader(
        images(6400, 1), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    test_loader = DataLoader(images(512, 2), batch_size=64)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    losses, history = [], []
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        for epoch in range(args.epochs):
            for x, y in train_loader:
                optimizer.zero_grad()
                output, features = model(x)
                loss = F.cross_entropy(output, y)
                loss.backward()
                optimizer.step()
                history.append((loss, features))
                losses.append(loss.detach())
                if args.steps and len(losses) >= args.steps:
                    break
            accuracy = evaluate(model, test_loader)
            mean = sum(loss.item() for loss, _ in history) / len(history)
            log.writerow([epoch, mean, accuracy])
            print(f"epoch {epoch}: mean loss {mean:.4f}, accuracy {accuracy:.3f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
