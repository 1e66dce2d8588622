"""Leaves by os._exit, as scripts do whose libraries hang at the end."""

import os

import torch

model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(3, 5)).square().mean().backward()
    optimizer.step()
os._exit(0)
