"""Trains until it is interrupted."""

import argparse
import atexit
import os
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--sign", type=Path, help="a file of each rank, made after 150 updates")
parser.add_argument("--stays", action="store_true", help="when it is interrupted")
parser.add_argument("--saves", action="store_true", help="when it is interrupted")
given = parser.parse_args()

log = Path("log.txt").open("w")  # noqa: SIM115  Python closes it
log.write("not flushed")
atexit.register(print, "at the end")
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train() -> None:
    number = 0
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        number += 1
        if number == 150 and given.sign is not None:
            Path(f"{given.sign}{os.environ.get('RANK', 0)}").touch()


try:
    train()
except KeyboardInterrupt:
    if given.stays:
        print("I stay")
        train()
    if not given.saves:
        raise
    torch.save(model.state_dict(), "saved.pt")
    print("saved")
