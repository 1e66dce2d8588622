"""A classifier fitted by a Lightning Trainer."""

import argparse
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 128), nn.ReLU()
        )
        self.head = nn.Linear(128, 5)
        self.train_losses = []

    def forward(self, x):
        return self.head(self.net(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.train_losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean())

    def on_validation_epoch_end(self):
        metrics = {name: round(float(m), 4) for name, m in self.trainer.callback_metrics.items()}
        print(f"epoch {self.current_epoch}: {metrics}")

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.8)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def clusters(size, seed):
    centres = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (size,), generator=draw)
    return TensorDataset(centres[labels] + 1.5 * torch.randn(size, 32, generator=draw), labels)


def main():
    parser = argparse.ArgumentParser(description="Fit with Lightning")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--losses", help="write every training loss to this file")
    args = parser.parse_args()

    L.seed_everything(args.seed)
    train_loader = DataLoader(clusters(2000, 1), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(clusters(500, 2), batch_size=100)
    model = Classifier(args.lr)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(model, train_loader, val_loader)
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss!r}\n" for loss in model.train_losses))


if __name__ == "__main__":
    main()
