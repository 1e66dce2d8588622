"""mnist-cnn: the network of the PyTorch MNIST example, 1,199,882 parameters."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab.data.fetch import load_images
from trainlab.workloads.reference import BUILTIN
from trainlab.workloads.workload import Scale, Workload

MEAN, STD = 0.1307, 0.3081


class Net(nn.Module):
    """Two 3x3 convolutions, a pooling, two linear layers; log-probabilities of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = torch.flatten(x, 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


workload = Workload(
    name="mnist-cnn",
    model=Net,
    data=lambda choice: load_images("mnist", choice),
    prepare=Scale(MEAN, STD),
    loss=F.nll_loss,
    defaults=BUILTIN["mnist-cnn"].defaults,
    summary=BUILTIN["mnist-cnn"].summary,
)
