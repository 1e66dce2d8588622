"""A twin network that says whether two images are of one class."""

import argparse
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """An image, another one, and whether they are of one class; half of the pairs are."""

    def __init__(self, size, seed):
        prototypes = torch.rand(10, 7, 7, generator=torch.Generator().manual_seed(0))
        draw = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(10, (size,), generator=draw)
        clean = F.interpolate(prototypes[self.labels].unsqueeze(1), scale_factor=4)
        self.images = clean + 0.5 * torch.randn(clean.shape, generator=draw)
        self.of_class = [(self.labels == label).nonzero().flatten().tolist() for label in range(10)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        label = int(self.labels[index])
        same = index % 2 == 0
        other = label if same else (label + random.randint(1, 9)) % 10
        second = random.choice(self.of_class[other])
        return self.images[index], self.images[second], torch.tensor(float(same))


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.twin = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.fc = nn.Sequential(nn.Linear(2 * 16 * 25, 64), nn.ReLU(), nn.Linear(64, 1))
        self.sigmoid = nn.Sigmoid()
        self.apply(self.init_weights)

    def init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            module.bias.data.fill_(0.01)

    def forward(self, first, second):
        both = torch.cat((self.twin(first), self.twin(second)), 1)
        return self.sigmoid(self.fc(both))


def train(args, model, device, loader, optimizer, epoch, losses):
    model.train()
    criterion = nn.BCELoss()
    for batch_idx, (first, second, targets) in enumerate(loader):
        first, second, targets = first.to(device), second.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = criterion(model(first, second).squeeze(1), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if batch_idx % args.log_interval == 0:
            seen = batch_idx * len(first)
            print(f"Train Epoch: {epoch} [{seen}/{len(loader.dataset)}]\tLoss: {loss.item():.6f}")
            if args.dry_run:
                break


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0.0, 0
    with torch.no_grad():
        for first, second, targets in loader:
            first, second, targets = first.to(device), second.to(device), targets.to(device)
            outputs = model(first, second).squeeze(1)
            test_loss += F.binary_cross_entropy(outputs, targets, reduction="sum").item()
            correct += (outputs > 0.5).eq(targets > 0.5).sum().item()
    size = len(loader.dataset)
    print(f"\nTest set: Average loss: {test_loss / size:.4f}, Accuracy: {correct}/{size}\n")


def main():
    parser = argparse.ArgumentParser(description="Siamese network")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-accel", action="store_true", help="stay on the CPU")
    parser.add_argument("--dry-run", action="store_true", help="one batch per epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    random.seed(args.seed)
    use_accel = not args.no_accel and torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    train_loader = DataLoader(Pairs(2400, 1), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Pairs(500, 2), batch_size=args.test_batch_size)
    model = SiameseNetwork().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    losses = []
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch, losses)
        test(model, device, test_loader)
        scheduler.step()
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
