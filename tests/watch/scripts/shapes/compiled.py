"""A plain loop around a compiled model."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.randn(4096, 16)
train_set = TensorDataset(x, torch.sin(x.sum(1, keepdim=True) / 2) + 0.3 * x[:, :1])
loader = DataLoader(train_set, batch_size=64, shuffle=True, drop_last=True)
net = nn.Sequential(nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
net = nn.Sequential(net, nn.Linear(128, 1))
model = torch.compile(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(int(sys.argv[1])):
    for x, y in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
    net.eval()
    with torch.no_grad():
        net(x)
    net.train()
