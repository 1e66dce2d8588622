"""A module beside the script."""

import torch


def build():
    return torch.nn.Linear(5, 2)
