"""Dataset: samples in splits, as tensors or as torch's loaders give them, and where they came from."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from trainlab.data.given import tells_names
from trainlab.data.loaded import Loaded, loaded
from trainlab.errors import DataError


@tells_names({"x": "inputs", "data": "inputs", "y": "targets", "labels": "targets"})
@dataclass(frozen=True)
class Split:
    """Samples and their targets, one row each, stored as they are kept (images as uint8)."""

    inputs: Tensor
    targets: Tensor
    _placed: dict[torch.device, "Split"] = field(default_factory=dict, repr=False, compare=False)
    """Copies on other devices, which all trials of a process share."""

    def __post_init__(self) -> None:
        for name in ("inputs", "targets"):
            if not isinstance(one := getattr(self, name), Tensor):
                kind = "None" if one is None else f"a {type(one).__name__}"
                rule = f"must be a tensor with a row for each sample, as torch.tensor({name})"
                raise DataError(f"Split: {name}: is {kind}, {rule}")
        if len(self.inputs) != len(self.targets) or len(self.inputs) == 0:
            raise DataError(
                f"a split has {len(self.inputs)} inputs and {len(self.targets)} targets, "
                "must have the same number of each, at least one"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_not_finite(self) -> int:
        """Samples with a NaN or an infinite number in their input or target."""
        is_finite = torch.ones(len(self), dtype=torch.bool, device=self.inputs.device)
        for part in (self.inputs, self.targets):
            if part.is_floating_point():
                rows = torch.isfinite(part).reshape(len(self), -1).all(dim=1)
                is_finite &= rows.to(is_finite.device)
        return int((~is_finite).sum())

    @property
    def num_bytes(self) -> int:
        """Memory the tensors take."""
        return self.inputs.nbytes + self.targets.nbytes

    def to(self, device: torch.device) -> "Split":
        """The same split on a device; asked again, the same copy."""
        if self.inputs.device == device == self.targets.device:
            return self
        if device not in self._placed:
            self._placed[device] = Split(self.inputs.to(device), self.targets.to(device))
        return self._placed[device]

    def part(self, rows: Tensor) -> "Split":
        """Those rows of it."""
        return Split(self.inputs[rows], self.targets[rows])


@tells_names({"training": "train", "testing": "test", "valid": "val", "validation": "val"})
@dataclass(frozen=True)
class Dataset:
    """What a workload trains and tests on. A split is a `Split` of tensors, which is fastest; or a torch
    `Dataset`, a `DataLoader`, or an iterable that gives the batches of an epoch each time."""

    name: str
    train: Any
    test: Any
    source: str = "given"
    """Where it came from: a folder, cache, bundled, …"""
    is_subset: bool = False
    """Whether it is less than the published set; said wherever results are shown."""
    note: str = ""
    """Why it is not the set that was wanted, if it is not."""
    classes: tuple[str, ...] = ()
    """What the target numbers mean, if they are classes."""
    collate_fn: Callable[[list[Any]], Any] | None = None
    """Puts samples together into a batch; not given: the loader's own, or torch's."""
    drop_last: bool = False
    """Leave out a last training batch that is smaller."""
    val: Any = None
    """A split to decide by while training: when to stop, which epoch to keep. Not given: the setting
    `val_fraction` can hold a part of the training set out."""

    def __post_init__(self) -> None:
        for name in ("train", "test", "val"):
            given = getattr(self, name)
            if given is None and name != "val":
                rule = "must be a trainlab.Split, a torch Dataset or DataLoader"
                raise DataError(f"{self.name}: {name}: is None, {rule}")
            if not isinstance(given, Split | Loaded | None):
                drops = self.drop_last and name == "train"
                given = loaded(given, f"{self.name}: {name}", self.collate_fn, drops)
            if isinstance(given, Loaded) and name != "train":
                given = replace(given, drop_last=False)  # every sample is tested
            object.__setattr__(self, name, given)

    @property
    def is_tensors(self) -> bool:
        """Whether all splits are tensors."""
        return all(isinstance(one, Split | None) for one in (self.train, self.test, self.val))
