"""Image classification that keeps a close eye on its metrics."""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 6


def images(size, seed):
    patterns = torch.randn(CLASSES, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=draw)
    noise = torch.randn(size, 1, 20, 20, generator=draw)
    return TensorDataset(0.3 * patterns[labels] + noise, labels)


def track_metrics(metrics, model, loss, output, target):
    """Loss, confusion matrix, precision and recall of every class, sizes of gradients: up to date."""
    metrics["loss"] = 0.95 * metrics.get("loss", loss.item()) + 0.05 * loss.item()
    confusion = metrics.setdefault("confusion", [[0] * CLASSES for _ in range(CLASSES)])
    confidence, predicted = output.softmax(dim=1).max(dim=1)
    for i in range(len(target)):
        confusion[target[i].item()][predicted[i].item()] += 1
        wrong = predicted[i] != target[i]
        if wrong and confidence[i].item() > 0.9:
            metrics["sure_but_wrong"] = metrics.get("sure_but_wrong", 0) + 1
    for label in range(CLASSES):
        hits = ((predicted == label) & (target == label)).sum().item()
        metrics[f"recall/{label}"] = hits / max((target == label).sum().item(), 1)
        metrics[f"precision/{label}"] = hits / max((predicted == label).sum().item(), 1)
    for name, parameter in model.named_parameters():
        metrics[f"grad/{name}"] = float(parameter.grad.norm())
        metrics[f"weight/{name}"] = float(parameter.detach().norm())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
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
        images(8192, 1), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    test_loader = DataLoader(images(512, 2), batch_size=256)
    model = nn.Sequential(
        *(nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 25, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    metrics, losses = {}, []
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        for epoch in range(args.epochs):
            for x, y in train_loader:
                optimizer.zero_grad()
                output = model(x)
                loss = F.cross_entropy(output, y)
                loss.backward()
                optimizer.step()
                track_metrics(metrics, model, loss, output, y)
                losses.append(loss.detach())
                if args.steps and len(losses) >= args.steps:
                    break
            accuracy = evaluate(model, test_loader)
            log.writerow([epoch, metrics.get("loss"), accuracy])
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")
            if args.steps and len(losses) >= args.steps:
                break
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.item()!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
