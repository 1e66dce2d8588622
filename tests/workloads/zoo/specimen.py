"""One kind of model, and how the zoo asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainlab import Dataset, Split, Workload


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """A workload, the two cells it is trained in, and what is watched."""

    workload: Workload
    vary: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any]
    probes: tuple[str, ...]
    learns: bool
    """Whether its test loss must fall; an adversarial one need not."""
    is_fast: bool
    """Whether it stands for its family in the fast run."""


def kind(
    name: str,
    model: Any,
    data: Dataset,
    *probes: str,
    vary: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    learns: bool = True,
    is_fast: bool = False,
    **fields: Any,
) -> Specimen:
    return Specimen(
        workload=Workload(name=name, model=model, data=data, **fields),
        vary=vary or {"lr": [0.01, 0.02]},
        settings=settings or {},
        probes=probes,
        learns=learns,
        is_fast=is_fast,
    )


def drawn(seed: int) -> torch.Generator:
    """A source of data that is the same in every process."""
    return torch.Generator().manual_seed(seed)


def points(count: int, seed: int, width: int = 8) -> tuple[Tensor, Tensor]:
    """Points of two clouds, and which each is of."""
    draw = drawn(seed)
    labels = torch.randint(2, (count,), generator=draw)
    return torch.randn(count, width, generator=draw) + 1.6 * (labels[:, None] - 0.5), labels


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Grey images of 8 by 8 with a bright bar that lies or stands."""
    draw = drawn(seed)
    pixels = 0.3 * torch.randn(count, 1, 8, 8, generator=draw)
    labels = torch.randint(2, (count,), generator=draw)
    for image, label in zip(pixels, labels, strict=True):
        row = int(torch.randint(8, (1,), generator=draw))
        image[0][row if label else slice(None), slice(None) if label else row] += 2
    return pixels, labels


def splits(make: Any, train: int = 64, test: int = 32) -> tuple[Split, Split]:
    return Split(*make(train, 1)), Split(*make(test, 2))
