"""Seen: what a script was seen to use: its loaders, models and optimizers."""

import hashlib
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

LOSS_NAME = "train/loss"
MOST_DIGESTED = 3
"""So many passes are compared by their first batch."""
DIGESTED_VALUES = 4096


@dataclass(eq=False)
class SeenLoader:
    """A DataLoader, and what it gave."""

    batch_size: int | None
    num_samples: int | None
    num_batches: int | None
    num_workers: int
    pin_memory: bool
    order: str
    """shuffled, in order, or by a sampler of its own."""
    drop_last: bool
    num_given: int = 0
    num_passes: int = 0
    num_trained: int = 0
    """Of those that were trained on."""
    trained_pass: int = 0
    """The last of them."""
    epochs_before: int = 0
    """Of loaders that were trained on before it."""
    has_run_out: bool = False
    """Whether the pass has given all of its batches."""
    ahead: list[int] = field(default_factory=list)
    """Sizes of batches that the pass gave before any was trained on: libraries read some ahead, and train
    on the last when the pass has run out."""
    is_trained_on: bool = False
    begins_alike: bool | None = None
    """Whether passes over it began with the same batch; None where only one was seen."""
    first_batch: str = ""
    """A digest of it."""
    digested_pass: int = 0

    def begin_pass(self) -> None:
        """From its first batch on."""
        self.num_passes += 1
        self.has_run_out = False
        self.ahead.clear()

    @property
    def is_trained_now(self) -> bool:
        """Whether batches of the pass that is under way are trained on."""
        return self.trained_pass == self.num_passes

    def train_on(self, epoch: int, last: "SeenLoader | None") -> int:
        """A batch of the pass that is under way is trained on, in this epoch, after one of `last`: the
        epoch that it is of. A loader that takes over from one that has run out goes on counting; those
        that are used side by side count the same."""
        if self.is_trained_now:
            return epoch
        if not self.num_trained:
            goes_on = last is not None and last.has_run_out
            self.epochs_before = epoch if goes_on else epoch - 1
        self.trained_pass = self.num_passes
        self.num_trained += 1
        self.is_trained_on = True
        return max(epoch, self.epochs_before + self.num_trained)

    def is_like(self, other: "SeenLoader") -> bool:
        """Whether both give batches in the same way."""
        ways = ("batch_size", "num_samples", "num_workers", "pin_memory", "order", "drop_last")
        return all(getattr(self, way) == getattr(other, way) for way in ways)

    def see_batch(self, batch: object) -> None:
        """A batch that it gave: the first of a pass is compared with that of the pass before."""
        self.num_given += 1
        if self.digested_pass == self.num_passes or self.num_passes > MOST_DIGESTED:
            return
        self.digested_pass = self.num_passes
        digest = digest_of(batch)
        if self.first_batch:
            self.begins_alike = digest == self.first_batch and self.begins_alike is not False
        self.first_batch = digest


@dataclass(eq=False)
class SeenModel:
    """A module that the script itself calls."""

    name: str
    num_parameters: int
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    is_compiled: bool


@dataclass(eq=False)
class SeenOptimizer:
    """An optimizer whose step was called."""

    name: str
    lr: float | None
    code: str
    """fused, foreach or loop, as far as its options say; auto: torch's choice."""
    loss_name: str = LOSS_NAME
    """The metric of the losses whose gradients it applies."""
    num_steps: int = 0


class Seen:
    """All that was seen so far."""

    def __init__(self) -> None:
        self.loaders: list[SeenLoader] = []
        self._of_loader: weakref.WeakKeyDictionary[DataLoader[Any], SeenLoader]
        self._of_loader = weakref.WeakKeyDictionary()
        self._of_data: list[tuple[Callable[[], object], SeenLoader]] = []
        """Data sets that are there, and a loader of each."""
        self.models: list[SeenModel] = []
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self.optimizers: list[SeenOptimizer] = []
        self._of_optimizer: dict[int, SeenOptimizer] = {}
        self._own: dict[SeenOptimizer, Callable[[], Optimizer | None]] = {}
        self.batch_size: int | None = None
        """Samples of the largest batch that was trained on, as far as it shows."""

    def loader(self, loader: "DataLoader[Any]") -> SeenLoader:
        """What is known of a loader, which may be new. One made anew for every pass over the same data is
        the same."""
        found = self._of_loader.get(loader)
        if found is None:
            found = self._of_loader[loader] = self._made_before(loader, _loader(loader))
        return found

    def _made_before(self, loader: "DataLoader[Any]", new: SeenLoader) -> SeenLoader:
        for data, known in self._of_data:
            if data() is loader.dataset and known.is_like(new):
                return known
        self.loaders.append(new)
        with suppress(TypeError):  # a list, say, cannot be told from one that took its place
            self._of_data.append((weakref.ref(loader.dataset), new))
        return new

    def model(self, module: nn.Module) -> None:
        """A module that the script calls, which may be new."""
        if module in self._models:
            return
        self._models.add(module)
        parameters = list(module.parameters())
        inner = getattr(module, "_orig_mod", None)
        self.models.append(
            SeenModel(
                type(module if inner is None else inner).__name__,
                sum(p.numel() for p in parameters),
                tuple(sorted({p.device.type for p in parameters})),
                tuple(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
                inner is not None,
            )
        )

    def optimizer(self, optimizer: Optimizer) -> SeenOptimizer:
        """What is known of an optimizer, which may be new."""
        found = self._of_optimizer.get(id(optimizer))
        if found is None:
            group = optimizer.param_groups[0] if optimizer.param_groups else {}
            # One that is gone has left its name to the next.
            taken = {one.loss_name for one in self._of_optimizer.values()}
            numbered = (f"{LOSS_NAME}_{number}" for number in count(2))
            name = next(one for one in chain([LOSS_NAME], numbered) if one not in taken)
            found = SeenOptimizer(type(optimizer).__name__, lr_of(optimizer), _code(group), name)
            key = id(optimizer)
            self._of_optimizer[key] = found
            self._own[found] = weakref.ref(optimizer)
            weakref.finalize(optimizer, self._of_optimizer.pop, key, None)
            self.optimizers.append(found)
        return found

    def optimizers_now(self) -> Mapping[int, SeenOptimizer]:
        """Those that are there, by their identity."""
        return self._of_optimizer

    def own(self, seen: SeenOptimizer) -> Optimizer | None:
        """The script's, while there is one."""
        return self._own[seen]()


def lr_of(optimizer: Optimizer) -> float | None:
    """Of its first group; None where it has none, or where reading it would hold the device up."""
    lr = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(lr, Tensor):
        return lr.item() if lr.device.type == "cpu" else None
    return float(lr) if isinstance(lr, int | float) else None


def size_of(batch: object) -> int | None:
    """Samples of a batch: the length of its first tensor; None where it has none."""
    tensor = _first_tensor(batch)
    return None if tensor is None or not tensor.dim() else tensor.size(0)


def digest_of(batch: object) -> str:
    """Of the values of a batch's first tensor, or a part of them; empty where it has none."""
    tensor = _first_tensor(batch)
    if tensor is None:
        return ""
    values = tensor.detach().reshape(-1)[:DIGESTED_VALUES].cpu().contiguous()
    return hashlib.sha256(values.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


MOST_PARTS = 1000
"""Of a batch that are looked through for a tensor: it may hold what holds it, or half of the script."""
_PLAIN = (str, bytes, int, float, type(None), type)
"""Hold nothing, and there may be many: the words of a text, say."""


def _first_tensor(batch: object) -> Tensor | None:
    waiting, looked_at = [batch], dict[int, object]()
    while waiting and len(looked_at) < MOST_PARTS:
        part = waiting.pop()
        if isinstance(part, Tensor):
            return part
        if id(part) not in looked_at and not isinstance(part, _PLAIN):
            looked_at[id(part)] = part  # which is there until the end, and so its identity its own
            waiting += reversed(_parts_of(part))
    return None


def _parts_of(batch: object) -> list[object]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, list | tuple):
        return list(batch)
    values = getattr(batch, "__dict__", None)
    return list(values.values()) if isinstance(values, dict) else []


def _code(group: Mapping[str, Any]) -> str:
    if group.get("fused"):
        return "fused"
    if group.get("foreach"):
        return "foreach"
    return "loop" if group.get("foreach") is False else "auto"


def _loader(loader: "DataLoader[Any]") -> SeenLoader:
    # One that was made with a sampler of batches has another of its own, which it does not ask.
    sampled = loader if loader.batch_size is not None else getattr(loader, "batch_sampler", None)
    sampler = getattr(sampled, "sampler", None)
    order = "shuffled" if isinstance(sampler, RandomSampler) else "own"
    if isinstance(sampler, SequentialSampler):
        order = "in order"
    return SeenLoader(
        loader.batch_size if loader.batch_size is not None else _batch_size(loader),
        _length(loader.dataset),
        _length(loader),
        loader.num_workers,
        bool(loader.pin_memory),
        order,
        bool(loader.drop_last),
    )


def _batch_size(loader: "DataLoader[Any]") -> int | None:
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
