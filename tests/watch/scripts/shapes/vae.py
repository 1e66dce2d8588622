"""A variational autoencoder of small images."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc21 = nn.Linear(256, 20)
        self.fc22 = nn.Linear(256, 20)
        self.fc3 = nn.Linear(20, 256)
        self.fc4 = nn.Linear(256, 784)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def blobs(size, seed):
    """Images of one soft round blob each, at a random place."""
    draw = torch.Generator().manual_seed(seed)
    centres = 6 + 16 * torch.rand(size, 2, 1, 1, generator=draw)
    rows, columns = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    distance = (rows - centres[:, 0]) ** 2 + (columns - centres[:, 1]) ** 2
    return TensorDataset(torch.exp(-distance / 18).unsqueeze(1))


def train(args, model, device, loader, optimizer, epoch, losses):
    model.train()
    train_loss = 0.0
    for batch_idx, (data,) in enumerate(loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        losses.append(loss.item())
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            seen = batch_idx * len(data)
            print(
                f"Train Epoch: {epoch} [{seen}/{len(loader.dataset)}]"
                f"\tLoss: {loss.item() / len(data):.6f}"
            )
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(loader.dataset):.4f}")


def test(model, device, loader):
    model.eval()
    test_loss = 0.0
    with torch.no_grad():
        for (data,) in loader:
            data = data.to(device)
            recon, mu, logvar = model(data)
            test_loss += loss_function(recon, data, mu, logvar).item()
    print(f"====> Test set loss: {test_loss / len(loader.dataset):.4f}")


def main():
    parser = argparse.ArgumentParser(description="A variational autoencoder")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--no-accel", action="store_true", help="stay on the CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    use_accel = not args.no_accel and torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    train_loader = DataLoader(blobs(3200, 1), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(blobs(1000, 2), batch_size=args.batch_size)
    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    results = Path("results")
    results.mkdir(exist_ok=True)
    losses = []
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch, losses)
        test(model, device, test_loader)
        with torch.no_grad():
            sample = model.decode(torch.randn(64, 20, device=device)).cpu()
            torch.save(sample.view(64, 1, 28, 28), results / f"sample_{epoch}.pt")
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
