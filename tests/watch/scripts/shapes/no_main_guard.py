"""Logistic regression, written from top to bottom."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=50)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--losses", help="write every training loss to this file")
args = parser.parse_args()

torch.manual_seed(args.seed)
x = torch.randn(5000, 20)
y = (x @ torch.randn(20) + 0.5 * torch.randn(5000) > 0).float()
train_loader = DataLoader(TensorDataset(x[:4000], y[:4000]), args.batch_size, shuffle=True)

model = nn.Linear(20, 1)
loss_fn = nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
losses = []

for epoch in range(args.epochs):
    for inputs, labels in train_loader:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs).squeeze(1), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        accuracy = ((model(x[4000:]).squeeze(1) > 0) == (y[4000:] > 0.5)).float().mean()
    print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}, accuracy {accuracy:.3f}")

if args.losses:
    Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))
