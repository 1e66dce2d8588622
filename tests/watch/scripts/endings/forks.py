"""Forks; the other process trains, too, and ends as a script does. Then this one leaves by os._exit, as
scripts do whose libraries hang at the end."""

import os
import sys
import time

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 5)).square().mean().backward()
        optimizer.step()


train(3)
other = os.fork()
if other == 0:
    time.sleep(1.2)  # lines of the curve are written every second
    train(5)
    sys.exit(0)
os.waitpid(other, 0)
train(4)
os._exit(0)
