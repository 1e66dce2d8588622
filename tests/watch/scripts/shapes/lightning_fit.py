"""A classifier fitted by a Lightning Trainer."""

import sys

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        return self.head(self.net(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        print("loss", loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.8)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def clusters(size, seed):
    centres = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (size,), generator=draw)
    return TensorDataset(centres[labels] + 1.5 * torch.randn(size, 32, generator=draw), labels)


L.seed_everything(1)
quiet = ("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary")
trainer = L.Trainer(max_epochs=int(sys.argv[1]), accelerator="cpu", **dict.fromkeys(quiet, False))
train_loader = DataLoader(clusters(2000, 1), batch_size=32, shuffle=True)
trainer.fit(Classifier(), train_loader, DataLoader(clusters(500, 2), batch_size=100))
