"""A small vision transformer with accumulated gradients and a moving average of its weights."""

import argparse
import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ViT(nn.Module):
    def __init__(self, image=16, patch=4, dim=48, depth=3, heads=4, classes=8):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (image // patch) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.encoder(x)[:, 0]))


def textures(size, seed):
    """Images of eight classes, each a wave of its own direction and colour."""
    waves = torch.rand(8, 3, 2, generator=torch.Generator().manual_seed(0)) * 1.5
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(8, (size,), generator=draw)
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
    phase = torch.einsum("ncd,dhw->nchw", waves[labels], grid)
    images = torch.sin(phase) + 0.5 * torch.randn(size, 3, 16, 16, generator=draw)
    return TensorDataset(images, labels)


@torch.no_grad()
def update_ema(ema, model, decay):
    for average, current in zip(ema.parameters(), model.parameters(), strict=True):
        average.lerp_(current, 1 - decay)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description="A small vision transformer")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2, help="batches per update")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--ema-decay", type=float, default=0.95)
    parser.add_argument("--amp", action="store_true", help="forward passes in bfloat16")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_loader = DataLoader(textures(768, 1), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(textures(256, 2), batch_size=128)
    model = ViT()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, weight_decay=args.weight_decay, betas=(0.9, 0.98)
    )
    updates = args.epochs * len(train_loader) // args.accumulate
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
    scaler = torch.amp.GradScaler("cpu", enabled=args.amp)
    losses = []

    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for i, (images, labels) in enumerate(train_loader, 1):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.amp):
                loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
                loss = loss / args.accumulate
            scaler.scale(loss).backward()
            losses.append(loss.item())
            running += loss.item() * args.accumulate
            if i % args.accumulate == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
                update_ema(ema, model, args.ema_decay)
        print(
            f"epoch {epoch}: train loss {running / len(train_loader):.4f}, "
            f"lr {scheduler.get_last_lr()[0]:.2e}, val acc {accuracy(model, val_loader):.3f}, "
            f"ema acc {accuracy(ema, val_loader):.3f}"
        )
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in losses))


if __name__ == "__main__":
    main()
