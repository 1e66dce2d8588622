from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

from trainlab.spec import settings_for
from trainlab.spec.facts import WorkloadFacts
from trainlab.workloads.find import find_workload
from trainlab.workloads.reference import BUILTIN
from trainlab.workloads.workload import Scale

SIZES = {"mnist-cnn": 1_199_882, "fashion-mlp": 101_770}


@pytest.mark.parametrize("name", BUILTIN)
def test_a_builtin_has_the_published_size_and_valid_defaults(name: str) -> None:
    workload = find_workload(name)
    model = workload.build({})
    assert sum(p.numel() for p in model.parameters()) == SIZES[name]
    assert workload.name == name
    settings_for(workload.defaults, {})
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("name", BUILTIN)
def test_what_a_dry_run_knows_of_a_builtin_is_what_it_is(name: str) -> None:
    found = find_workload(name)
    for fact in (one.name for one in fields(WorkloadFacts)):
        assert getattr(BUILTIN[name], fact) == getattr(found.facts, fact), fact


def test_mnist_cnn_is_the_pytorch_example() -> None:
    settings = settings_for(find_workload("mnist-cnn").defaults, {})
    assert (settings.optimizer, settings.lr, settings.schedule) == ("adadelta", 1.0, "step")
    assert (settings.lr_gamma, settings.batch_size, settings.test_batch_size) == (0.7, 64, 1000)
    torch.manual_seed(0)
    model = find_workload("mnist-cnn").build({}).eval()
    layers = dict(model.named_modules())
    example = nn.Sequential(
        *(layers["conv1"], nn.ReLU(), layers["conv2"], nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(layers["fc1"], nn.ReLU(), layers["fc2"], nn.LogSoftmax(1)),
    )
    images = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(model(images), example(images))
    assert [layers["dropout1"].p, layers["dropout2"].p] == [0.25, 0.5]


def test_fashion_mlp_takes_its_hidden_size() -> None:
    model = find_workload("fashion-mlp").build({"hidden": 7})
    assert sum(p.numel() for p in model.parameters()) == 784 * 7 + 7 + 7 * 10 + 10


def test_pixels_are_normalised_as_published() -> None:
    pixels = torch.arange(256, dtype=torch.uint8)

    def published(mean: float, std: float) -> Tensor:
        return ((pixels.double() / 255 - mean) / std).float()

    torch.testing.assert_close(Scale(0.1307, 0.3081)(pixels), published(0.1307, 0.3081))
    torch.testing.assert_close(Scale(0.5, 0.5)(pixels), published(0.5, 0.5))
    assert pixels.dtype == torch.uint8
