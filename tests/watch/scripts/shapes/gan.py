"""A generator against a discriminator."""

import sys

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(1280, 8).cumsum(1))
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
net_g = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(True), nn.Linear(32, 8))
net_d = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizer_d = optim.Adam(net_d.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizer_g = optim.Adam(net_g.parameters(), lr=0.0002, betas=(0.5, 0.999))
for epoch in range(int(sys.argv[1])):
    for (real,) in loader:
        # The discriminator: real samples, then made ones.
        net_d.zero_grad()
        label = torch.ones(len(real), 1)
        err_d_real = criterion(net_d(real), label)
        err_d_real.backward()
        fake = net_g(torch.randn(len(real), 4))
        err_d_fake = criterion(net_d(fake.detach()), torch.zeros(len(real), 1))
        err_d_fake.backward()
        optimizer_d.step()

        # The generator, for which the made ones should pass as real.
        net_g.zero_grad()
        err_g = criterion(net_d(fake), label)
        err_g.backward()
        optimizer_g.step()
        for loss in (err_d_real, err_d_fake, err_g):
            print("loss", loss.item())
    with torch.no_grad():
        fake = net_g(torch.randn(64, 4))
    print(f"epoch {epoch}: mean {fake.mean().item():.4f}")
