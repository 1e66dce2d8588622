"""Data-parallel training: torchrun --standalone --nproc-per-node 2 ddp.py"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Clusters(Dataset):
    def __init__(self, size, seed, delay_s=0.0):
        centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
        draw = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(10, (size,), generator=draw)
        self.points = centres[self.labels] + 2 * torch.randn(size, 64, generator=draw)
        self.delay_s = delay_s

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]

    def __getitems__(self, indices):
        """A whole batch at once, after what a slow disk would take."""
        time.sleep(self.delay_s)
        return [self[index] for index in indices]


def main():
    parser = argparse.ArgumentParser(description="Data-parallel training with gloo")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow-rank", type=int, help="the rank that reads from a slow disk")
    parser.add_argument("--losses", help="write rank 0's losses here, others' to FILE.rankN")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    train_set = Clusters(4096, 1, delay_s=0.005 if rank == args.slow_rank else 0.0)
    sampler = DistributedSampler(train_set, seed=args.seed)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    test_set = Clusters(512, 2)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    model = DistributedDataParallel(nn.Sequential(net, nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if rank == 0:
            model.eval()
            with torch.no_grad():
                hits = model.module(test_set.points).argmax(1) == test_set.labels
            print(f"epoch {epoch}: loss {losses[-1]:.4f}, accuracy {hits.float().mean():.3f}")
    if args.losses:
        path = Path(args.losses if rank == 0 else f"{args.losses}.rank{rank}")
        path.write_text("".join(f"{loss!r}\n" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
