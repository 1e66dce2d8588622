"""Takes its model from beside it, and raises deep inside."""

import argparse

import torch

from .network import build


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(parser.parse_args().steps):
        optimizer.zero_grad()
        model(torch.ones(3, 5)).square().mean().backward()
        optimizer.step()
    return model(torch.ones(3, 4))


if __name__ == "__main__":
    main()
