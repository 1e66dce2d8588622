"""fashion-mlp: one hidden layer on Fashion-MNIST, 101,770 parameters."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainlab.data.fetch import load_images
from trainlab.workloads.reference import BUILTIN
from trainlab.workloads.workload import Scale, Workload


class Net(nn.Module):
    """Flatten, linear, ReLU, linear; logits of ten classes."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(784, hidden)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc2(self.relu(self.fc1(self.flatten(x))))
        return logits


workload = Workload(
    name="fashion-mlp",
    model=Net,
    data=lambda choice: load_images("fashion-mnist", choice),
    prepare=Scale(mean=0.5, std=0.5),
    loss=F.cross_entropy,
    defaults=BUILTIN["fashion-mlp"].defaults,
    summary=BUILTIN["fashion-mlp"].summary,
)
