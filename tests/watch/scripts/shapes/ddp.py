"""Data-parallel training: torchrun --standalone --nproc-per-node 2 ddp.py"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
centres = torch.randn(10, 64)
labels = torch.randint(10, (4096,))
points = centres[labels] + 2 * torch.randn(4096, 64)
train_set = TensorDataset(points, labels)
sampler = DistributedSampler(train_set, seed=1)
loader = DataLoader(train_set, batch_size=32, sampler=sampler)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
model = DistributedDataParallel(nn.Sequential(net, nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(int(sys.argv[1])):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"loss{rank or ''} {loss.item()}\n", end="", flush=True)  # one write for each
    if rank == 0:
        model.eval()
        with torch.no_grad():
            model.module(points)
dist.destroy_process_group()
