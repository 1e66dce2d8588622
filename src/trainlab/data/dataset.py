"""Dataset: samples in splits, as tensors or as torch's loaders give them, and where they came from."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from trainlab.errors import DataError, TrainlabError
from trainlab.spec.base import name_hint

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Loaded:
    """A torch `Dataset`, or anything that is indexed by number and knows its length; or, where batches are
    made elsewhere, an iterable of them."""

    samples: Any
    collate: Collate = default_collate
    shuffle: bool = True
    drop_last: bool = False
    workers: int = 0
    """Processes that fetch ahead; 0: this one, when a batch is needed."""
    pin_memory: bool = False
    sampler: Any = None
    """A sampler of the user's own, which says what an epoch is."""
    makes_batches: bool = False
    """Whether `samples` gives whole batches: their size is then not ours to set."""
    streams: bool = False
    """Whether `samples` gives one sample after the other, in an order of its own."""
    worker_init: Callable[[int], None] | None = None
    """Of a stream's loader: what each worker runs first, say to take its share of the samples."""
    loader_batch_size: int | None = None
    """What the user's loader was made with, where it can be set; the trial's is what counts."""

    @property
    def is_counted(self) -> bool:
        """Whether how many there are shows only when all have come."""
        return self.makes_batches or self.streams

    def __len__(self) -> int:
        if self.sampler is not None and isinstance(self.sampler, Sized):
            return len(self.sampler)
        return len(self.samples)

    def part(self, rows: Tensor) -> "Loaded":
        """Those samples of it; see `check_divisible`."""
        return replace(self, samples=Subset(self.samples, rows.tolist()))

    def check_divisible(self) -> None:
        """DataError where no part of it can be taken."""
        if self.is_counted or self.sampler is not None:
            raise DataError(
                "train_samples, val_fraction: only of data that is indexed by number; leave them out, or "
                "give such a part yourself"
            )


def loaded(given: Any, place: str, collate: Collate | None, drop_last: bool) -> Loaded:
    """What the user gave as a split; DataError where it is nothing that gives samples."""
    if isinstance(given, DataLoader):
        return _from_loader(given, collate, drop_last)
    own = collate or default_collate
    if isinstance(given, IterableDataset):
        return Loaded(given, own, shuffle=False, drop_last=drop_last, streams=True)
    if hasattr(given, "__getitem__") and not isinstance(given, Mapping):
        if not isinstance(given, Sized):
            raise DataError(f"{place}: a {type(given).__name__} without a length; give it __len__")
        if len(given) == 0:
            raise DataError(f"{place}: has no samples")
        return Loaded(given, own, drop_last=drop_last)
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise DataError(
            f"{place}: is a {type(given).__name__}, must be a trainlab.Split, a torch Dataset or "
            "DataLoader, or an iterable of batches"
        )
    if isinstance(given, Iterator):
        raise DataError(
            f"{place}: is a {type(given).__name__}, which can be gone through once; give an object whose "
            "__iter__ starts anew each epoch"
        )
    return Loaded(given, shuffle=False, makes_batches=True)


def _from_loader(given: "DataLoader[Any]", collate: Collate | None, drop_last: bool) -> Loaded:
    """Rebuilt from its parts, so that the batch size can be set and its order derives from the seed, unless
    it makes its batches in a way of its own."""
    if given.batch_size is None:
        return Loaded(given, shuffle=False, makes_batches=True)
    sampler: Any = given.sampler
    is_shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement
    streams = isinstance(given.dataset, IterableDataset)
    is_own = not (is_shuffled or streams or isinstance(sampler, SequentialSampler))
    return Loaded(
        given.dataset,
        collate or given.collate_fn,
        shuffle=is_shuffled,
        drop_last=drop_last or given.drop_last,
        workers=given.num_workers,
        pin_memory=given.pin_memory,
        sampler=sampler if is_own else None,
        streams=streams,
        worker_init=given.worker_init_fn if streams else None,
        loader_batch_size=given.batch_size,
    )


Kind = TypeVar("Kind")
PLACE = "_trainlab_place"
"""The attribute of what a user makes that has the file and the line of her call."""


def tells_names(raised: type[TrainlabError]) -> Callable[[type[Kind]], type[Kind]]:
    """A dataclass whose constructor names its fields to who misses one, and notes who called it."""

    def explained(kind: type[Kind]) -> type[Kind]:
        made = kind.__init__
        _, *parameters = inspect.signature(made).parameters.values()
        fields = {one.name: one for one in parameters if not one.name.startswith("_")}
        placed = [name for name, one in fields.items() if one.kind is not one.KEYWORD_ONLY]
        needed = [name for name, one in fields.items() if one.default is one.empty]

        def problem(given: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
            if unknown := [name for name in named if name not in fields]:
                hint = name_hint(unknown[0], fields, f"known: {', '.join(fields)}")
                return f"has no field {unknown[0]!r}; {hint}"
            if missing := [one for one in needed if one not in (*placed[: len(given)], *named)]:
                told = ", ".join(f"{one}=…" for one in missing)
                return f"lacks {', '.join(missing)}; give {told}"
            return None

        @wraps(made)
        def construct(self: Any, *given: Any, **named: Any) -> None:
            if (wrong := problem(given, named)) is not None:
                raise raised(f"{kind.__name__}: {wrong}")
            caller = sys._getframe(1)
            file = caller.f_code.co_filename
            place = f"{file}:{caller.f_lineno}" if Path(file).is_file() else ""
            object.__setattr__(self, PLACE, place)
            try:
                made(self, *given, **named)
            except TrainlabError as error:
                raise error.with_traceback(None) from None

        kind.__init__ = construct  # type: ignore[method-assign]
        return kind

    return explained


@tells_names(DataError)
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
        return self.inputs.nbytes + self.targets.nbytes

    def to(self, device: torch.device) -> "Split":
        """The same split on a device; asked again, the same copy."""
        if self.inputs.device == device == self.targets.device:
            return self
        if device not in self._placed:
            self._placed[device] = Split(self.inputs.to(device), self.targets.to(device))
        return self._placed[device]

    def part(self, rows: Tensor) -> "Split":
        return Split(self.inputs[rows], self.targets[rows])


@tells_names(DataError)
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
        return all(isinstance(one, Split | None) for one in (self.train, self.test, self.val))
