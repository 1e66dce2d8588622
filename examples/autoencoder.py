"""An autoencoder of images: the input is its own target, so the targets are the images themselves.

trainlab run examples/autoencoder.py:workload --vary code=4,16 --seeds 3
"""

import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset, OfWholeSet, Split, Workload
from trainlab.data.fetch import load_images


def data(choice: str) -> Dataset:
    """Fashion-MNIST without its labels: 784 numbers from 0 to 1 each, and the same again as the target."""
    images = load_images("fashion-mnist", "bundled" if choice == "auto" else choice)

    def to_itself(split: Split) -> Split:
        pixels = split.inputs.flatten(1).float() / 255
        return Split(pixels, pixels)

    return Dataset("fashion-pixels", to_itself(images.train), to_itself(images.test))


def model(code: int = 16, hidden: int = 128) -> nn.Module:
    """Through `code` numbers and back; both parameters can be set or varied."""
    return nn.Sequential(
        *(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, code)),
        *(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, 784)),
    )


def explained(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of the pixels' variance that comes through: a number of the whole test set, no mean."""
    return 1 - F.mse_loss(outputs, targets) / targets.var()


workload = Workload(
    name="autoencoder",
    model=model,
    data=data,
    loss=F.mse_loss,
    metrics={"explained": OfWholeSet(explained, higher_is_better=True)},
    defaults={"epochs": 3, "batch_size": 64, "optimizer": "adam", "lr": 0.002},
)
