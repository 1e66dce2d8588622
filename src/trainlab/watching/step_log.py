"""StepLog: what each update of a script was, beside its time: its losses, its samples, its epoch; and the
loaders, models and optimizers that it was seen to use."""

import math
import weakref
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, chain, count
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.weak import WeakIdKeyDictionary

from trainlab.data.nesting import sized, tensors_in
from trainlab.record.script_record import ModelRow

LOSS_NAME = "train/loss"


@dataclass(eq=False)
class SeenLoader:
    """A DataLoader, and what it gave; the first fields as in its record."""

    batch_size: int | None
    num_samples: int | None
    num_batches: int | None
    num_workers: int
    pin_memory: bool
    order: str
    drop_last: bool
    num_drawn: int | None
    """Samples that its sampler gives in a pass."""
    num_given: int = 0
    num_passes: int = 0
    num_in_pass: int = 0
    """Batches that the newest pass has given."""
    num_usual: int | None = None
    """Those of one before, which was trained on."""
    num_trained: int = 0
    """Of the passes, those that were trained on."""
    num_batches_trained: int = 0
    trained_pass: int = 0
    """The last of them."""
    epochs_before: int = 0
    """Of loaders that were trained on before it."""
    has_run_out: bool = False
    """Whether the pass has given all of its batches."""
    ahead: deque[int] = field(default_factory=deque)
    """Sizes of batches that the pass gave and that were not trained on yet: libraries read some ahead."""
    data: Callable[[], object] = lambda: None
    """The data set, while it is there."""

    @classmethod
    def of(cls, loader: "DataLoader[Any]") -> "SeenLoader":
        """One that is new."""
        # One that was made with a sampler of batches has another of its own, which it does not ask.
        batches = getattr(loader, "batch_sampler", None)
        sampler = getattr(loader if loader.batch_size is not None else batches, "sampler", None)
        order = "shuffled" if isinstance(sampler, RandomSampler) else "own"
        size = getattr(batches, "batch_size", None) if loader.batch_size is None else None
        drawn = _length(sampler)
        seen = cls(
            size if isinstance(size, int) else loader.batch_size,
            _length(loader.dataset) if drawn is None else drawn,
            _length(loader),
            loader.num_workers,
            bool(loader.pin_memory),
            "in order" if isinstance(sampler, SequentialSampler) else order,
            bool(loader.drop_last or getattr(batches, "drop_last", False)),
            drawn,
        )
        with suppress(TypeError):  # a list, say, cannot be told from one in its place
            seen.data = weakref.ref(loader.dataset)
        return seen

    @property
    def is_trained_on(self) -> bool:
        """Whether any of its batches were."""
        return bool(self.num_trained)

    @property
    def passes(self) -> float | None:
        """How often it gave all its batches, those that were trained on where any were: 0.4 of a pass. None
        where nothing tells how many there are."""
        if self.num_batches:
            return (self.num_batches_trained or self.num_given) / self.num_batches
        return (self.num_trained or self.num_passes) if self.has_ended_pass else None

    @property
    def has_ended_pass(self) -> bool | None:
        """Whether the newest pass gave all of its batches, or as many as the one before; None where nothing
        tells how many there are."""
        usual = self.num_usual or self.num_batches
        return self.has_run_out or (None if usual is None else self.num_in_pass >= usual)

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
        return max(epoch, self.epochs_before + self.num_trained)

    def is_like(self, other: "SeenLoader") -> bool:
        """Whether both give batches of the same data in the same way."""
        ways = ("batch_size", "num_samples", "num_workers", "pin_memory", "order", "drop_last")
        is_same_data = self.data() is not None and self.data() is other.data()
        return is_same_data and all(getattr(self, way) == getattr(other, way) for way in ways)

    def size_of(self, batch: object) -> int:
        """Samples of the batch that comes next, by its loader; by its tensors where that does not tell."""
        if (size := self.batch_size) is None:
            return size_of(batch) or 0
        if self.num_drawn is None:
            return min(size, size_of(batch) or size)
        left = self.num_drawn - self.num_in_pass * size
        return left if 0 < left < size else size

    def see_batch(self, batch: object) -> None:
        """A batch that it gave."""
        self.ahead.append(self.size_of(batch))
        self.num_given += 1
        self.num_in_pass += 1


@dataclass(eq=False)
class SeenOptimizer:
    """An optimizer whose step was called."""

    name: str
    lr: float | None
    code: str
    """fused, foreach or loop, as far as its options say; auto: torch's choice."""
    loss_name: str = LOSS_NAME
    """The metric of the losses whose gradients it applies."""
    is_of_new: bool = False
    """Whether its weights are of no model called before the first update, nor of another optimizer."""
    first_step: int = 0
    """This and the next: the steps of its first update and its last, counted from 0."""
    last_step: int = 0
    num_steps: int = 0
    lowest_lr: float | None = None
    """This and the next: over its updates and groups of parameters."""
    highest_lr: float | None = None
    _lrs: list[float | None] = field(default_factory=list)

    def see_lrs(self, groups: list[dict[str, Any]]) -> None:
        """Those of an update."""
        lrs = [lr if type(lr := group.get("lr")) is float else _lr(lr) for group in groups]
        if lrs != self._lrs:
            self._lrs = lrs
            known = [lr for lr in (*lrs, self.lowest_lr, self.highest_lr) if lr is not None]
            self.lowest_lr, self.highest_lr = min(known, default=None), max(known, default=None)


class Losses:
    """What `backward` was called on, in order: a value for every pass from one number, nan for any other
    one. What lies on a GPU is copied, and read when somebody asks: the device is not held up."""

    def __init__(self) -> None:
        self._known = array("d")
        """All so far; nan for what still is on a device."""
        self._waiting: list[tuple[int, Tensor]] = []
        """Places and copies: the script may write to its own."""
        self._scaled: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._known)

    def note_scaled(self, scaled: object, loss: object) -> None:
        """A gradient scaler has made `scaled` of `loss`: that is what the curve shows."""
        if isinstance(scaled, Tensor) and isinstance(loss, Tensor):
            self._scaled = scaled, loss

    def add(self, roots: object) -> None:
        """The tensors that a backward pass begins at: of one number, its value."""
        root = roots[0] if isinstance(roots, list | tuple) and len(roots) == 1 else roots
        if self._scaled is not None and root is self._scaled[0]:
            root, self._scaled = self._scaled[1], None
        value = math.nan
        if isinstance(root, Tensor) and root.numel() == 1:
            if root.is_cpu:
                value = _value_of(root)
            elif not _is_capturing():
                self._waiting.append((len(self._known), root.detach().clone()))
        self._known.append(value)

    def note(self, value: float) -> None:
        """One that is known, of no backward pass that was seen."""
        self._known.append(value)

    def values(self) -> "array[float]":
        """All so far; waits for what still is on a device, but for a graph that is being captured."""
        if self._waiting and not _is_capturing():
            waiting, self._waiting = self._waiting, []
            try:
                found = torch.stack([one.reshape(()) for _, one in waiting]).tolist()
            except RuntimeError:  # on several devices, or on none
                found = [_value_of(one) for _, one in waiting]
            for (place, _), value in zip(waiting, found, strict=True):
                self._known[place] = math.nan if isinstance(value, complex) else value
        return self._known


class StepLog:
    """Is told of batches, backward passes and updates, in their order."""

    def __init__(self) -> None:
        self.loaders: list[SeenLoader] = []
        self.models: list[ModelRow] = []
        self.optimizers: list[SeenOptimizer] = []
        self.framework = ""
        """What trained in place of torch's own optimizers, with its version."""
        self.checks_anomalies = False
        self.num_parameters = 0
        """Of the models called before the first update and of what optimizers update, each tensor once."""
        self._counted, self._row_of = WeakIdKeyDictionary(), WeakIdKeyDictionary()
        """Those tensors, and the models that tensors are of."""
        self.batch_size: int | None = None
        """Samples of the largest batch that was trained on, as its loader says."""
        self.first_dimension: int | None = None
        """Where it does not say: of the first tensor of the largest."""
        self._of_loader = weakref.WeakKeyDictionary[DataLoader[Any], SeenLoader]()
        self._called: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._of_optimizer: dict[int, SeenOptimizer] = {}
        """Those that are there, by their identity."""
        self.losses = Losses()
        """What `backward` was called on, all of it."""
        self.samples, self.epochs = array("q"), array("q")
        """Of each step, the samples trained on by its end, and its epoch."""
        self.loader: SeenLoader | None = None
        """The one that the last batch trained on came from."""
        self._fetched: SeenLoader | None = None
        """The one that gave a batch last."""
        self._runs_again = False
        self._num_samples, self._epoch = 0, 1
        self._pending = 0
        """The place of the first loss since the last update by any optimizer."""
        self._under_way = 0, 0
        """Of the update under way, the first of the losses before it, and their number."""
        self._followed: dict[str, tuple[array[int], array[int], array[int]]] = {}
        """By metric: steps, and the first and the number of the losses whose gradients each applied."""
        self._lead: Callable[[], Optimizer | None] = lambda: None
        """The optimizer whose updates end steps, while there is one."""
        self._is_led = False
        """Whether the user has said which that is."""
        self._beside: set[int] = set()
        """Others that made an update since the last of that one, by their identity."""

    def known_loader(self, loader: "DataLoader[Any]") -> SeenLoader:
        """What is known of a loader, which may be new. One made anew for every pass over the same data is
        the same."""
        found = self._of_loader.get(loader)
        if found is None:
            found = self._of_loader[loader] = self.like_loader(SeenLoader.of(loader))
        return found

    def like_loader(self, new: SeenLoader) -> SeenLoader:
        """The one that is known and alike, or the new one, which is known from here on."""
        found = next((one for one in self.loaders if one.is_like(new)), new)
        if found is new:
            self.loaders.append(new)
        return found

    @property
    def device(self) -> str:
        """The kind that the models seen so far are on."""
        kinds = {kind for model in self.models for kind in model.devices}
        return next((kind for kind in ("cuda", "mps", "tpu") if kind in kinds), "cpu")

    @property
    def is_of_torch(self) -> bool:
        """Whether torch computes the steps."""
        return not self.framework or "PyTorch" in self.framework

    @property
    def trained_loader(self) -> SeenLoader | None:
        """The first whose batches were trained on."""
        return next((one for one in self.loaders if one.is_trained_on), None)

    def model_called(self, module: nn.Module) -> None:
        """A module that the script calls, which may be new."""
        if module in self._called or self._runs_again:
            return
        self._called.add(module)
        parameters, inner = sized(module.parameters()), getattr(module, "_orig_mod", None)
        known: Counter[int] = Counter()
        for one in parameters:
            known[id(self._row_of.get(one))] += one.numel()
        if not known[id(None)]:
            return  # it is a part of one that is known
        row = ModelRow(
            name=type(module if inner is None else inner).__name__,
            num_parameters=known.total(),
            devices=sorted({p.device.type for p in parameters}),
            dtypes=sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
            is_compiled=inner is not None,
        )
        # What was called before the whole is a part of it.
        self.models = [one for one in self.models if known[id(one)] < one.num_parameters]
        self.models.append(row)
        self._row_of.update((one, row) for one in parameters)
        if not self.samples:  # a later one may be a copy, loaded for a last test
            self._count(parameters)

    def _count(self, tensors: Iterable[Tensor]) -> None:
        tensors = sized(tensors)
        self.num_parameters += sum(one.numel() for one in tensors if one not in self._counted)
        self._counted.update((one, True) for one in tensors)

    def known_optimizer(self, optimizer: Optimizer) -> SeenOptimizer:
        """What is known of an optimizer, which may be new."""
        found = self._of_optimizer.get(id(optimizer))
        if found is None:
            # One that is gone has left its name to the next.
            taken = {one.loss_name for one in self._of_optimizer.values()}
            numbered = (f"{LOSS_NAME}_{number}" for number in count(2))
            name = next(one for one in chain([LOSS_NAME], numbered) if one not in taken)
            group = optimizer.param_groups[0] if optimizer.param_groups else {}
            foreach = group.get("foreach")
            code = "auto" if foreach is None else "foreach" if foreach else "loop"
            if group.get("fused"):
                code = "fused"
            tensors = [one for own in optimizer.param_groups for one in own["params"]]
            is_of_new = not self._runs_again and not any(one in self._counted for one in tensors)
            lr, step = _lr(group.get("lr")), len(self.samples)
            found = SeenOptimizer(type(optimizer).__name__, lr, code, name, is_of_new, step)
            if not self._runs_again:
                self._count(tensors)
            self._of_optimizer[id(optimizer)] = found
            weakref.finalize(optimizer, self._of_optimizer.pop, id(optimizer), None)
            self.optimizers.append(found)
        return found

    @property
    def restarts(self) -> list[int]:
        """The steps at which the training of another model began: an optimizer of weights that are new made
        its first update after the last of all before it."""
        ends = accumulate((one.last_step for one in self.optimizers), max, initial=-1)
        pairs = [
            (one.first_step, end)
            for one, end in zip(self.optimizers, ends, strict=False)
            if one.is_of_new
        ]
        return [first for first, end in pairs if end < first < len(self.samples)]

    def losses_between(self, first: int, end: int) -> dict[str, dict[int, float]]:
        """By step, counted from 0, the losses whose gradients each optimizer applied in these: sums of what
        `backward` was called on before its update. Where gradients come from elsewhere there are none."""
        values, found = self.losses.values(), dict[str, dict[int, float]]()
        for name, (steps, firsts, numbers) in self._followed.items():
            part = slice(bisect_left(steps, first), bisect_left(steps, end))
            if part.start < part.stop:
                places = zip(steps[part], firsts[part], numbers[part], strict=True)
                found[name] = {step: sum(values[at : at + number]) for step, at, number in places}
        return found

    def losses_of(self, step: int) -> dict[str, float]:
        """Those of one."""
        return {name: one[step] for name, one in self.losses_between(step, step + 1).items()}

    def losses_by_samples(self, first: int, end: int) -> dict[str, list[float]]:
        """Those whose mean is one over samples: each times its samples over those of the mean update; as
        they are where no loader tells samples, or where an update is of several batches, since nobody tells
        by how many the script divides its loss."""
        found = dict[str, list[float]]()
        for name, losses in self.losses_between(first, end).items():
            values = found[name] = list(losses.values())
            given = [self.samples[at] - (self.samples[at - 1] if at else 0) for at in losses]
            if self.batch_size is None or not 0 < min(given) <= max(given) <= self.batch_size:
                continue
            mean = sum(given) / len(given)
            found[name] = [loss * n / mean for loss, n in zip(values, given, strict=True)]
        return found

    def lead_by(self, optimizer: Optimizer) -> None:
        """Its updates are those that end a step."""
        self._lead, self._is_led = weakref.ref(optimizer), True

    def begin_again(self) -> None:
        """The script is about to run once more, with objects of its own."""
        self._lead, self._pending, self._fetched = lambda: None, len(self.losses), None
        self._runs_again = True
        if self.loader is not None:
            self.loader.ahead.clear()

    def pass_begins(self, loader: "DataLoader[Any]") -> SeenLoader:
        """What it gave last is not trained on any more."""
        seen = self.known_loader(loader)
        if seen.num_passes and seen.is_trained_now:
            seen.num_usual = seen.num_in_pass
        seen.num_passes += 1
        seen.num_in_pass, seen.has_run_out = 0, False
        seen.ahead.clear()
        return seen

    def fetched(self, loader: SeenLoader, batch: object) -> None:
        """A batch, which may be trained on or not."""
        loader.see_batch(batch)
        self._fetched = loader

    def tested(self) -> None:
        """The batches fetched last were those of a test."""
        if self._fetched is not None:
            self._fetched.ahead.clear()

    def trains(self) -> None:
        """A backward pass begins, from whatever: it trains on the next batch of the loader that the last
        one came from, or of the one that gave a batch last."""
        has_more = self.loader is not None and self.loader.ahead
        loader = self.loader if has_more else self._fetched
        if loader is None or not loader.ahead:
            return
        self._epoch = loader.train_on(self._epoch, self.loader)
        self.loader, size = loader, loader.ahead.popleft()
        loader.num_batches_trained += 1
        self._num_samples += size
        if loader.batch_size is None:
            self.first_dimension = max(size, self.first_dimension or 0)
        else:
            self.batch_size = max(loader.batch_size, self.batch_size or 0)

    def epoch_begins(self, loader: SeenLoader | None) -> None:
        """As Keras says, with what it trains on."""
        self._epoch += bool(self.samples)
        self.loader = loader
        if loader is not None:
            loader.num_passes += 1
            loader.num_trained += 1
            loader.trained_pass = loader.num_passes
            loader.num_in_pass, loader.has_run_out = 0, False

    def fitted(self, loader: SeenLoader | None, size: int) -> None:
        """A batch of so many samples was trained on by Keras; 0: as many as its data says."""
        if loader is not None:
            size = size or (loader.size_of(None) if loader.batch_size else 0)
            loader.num_given += 1
            loader.num_in_pass += 1
            loader.num_batches_trained += 1
        self._num_samples += size
        if loader is None or loader.batch_size is None:
            self.first_dimension = max(size, self.first_dimension or 0) or None
        else:
            self.batch_size = max(loader.batch_size, self.batch_size or 0)

    def update_begins(self) -> None:
        """By any optimizer, but for one that another is wrapped around."""
        self._under_way = self._pending, len(self.losses) - self._pending
        self._pending = len(self.losses)

    def update_ends(self, optimizer: Optimizer) -> None:
        """It has followed the losses from before it began; one with a closure, which asks for the loss
        again and again, the first of those: it is that of the weights before the update."""
        seen = self.known_optimizer(optimizer)
        seen.num_steps, seen.last_step = seen.num_steps + 1, len(self.samples)
        first, number = self._under_way
        if not number:
            first, number = self._pending, min(1, len(self.losses) - self._pending)
        self._under_way, self._pending = (0, 0), len(self.losses)
        seen.see_lrs(optimizer.param_groups)
        if number:
            # The second of two, as a generator's, comes after the update that ends the step of both.
            is_second = self._lead() not in (None, optimizer)
            self._follow(seen.loss_name, first, number, may_be_late=is_second)

    def update_by_hand(self) -> None:
        """Weights that no optimizer of torch's updates."""
        self.update_begins()
        self._follow(LOSS_NAME, *self._under_way)

    def ends_step(self, optimizer: Optimizer) -> bool:
        """Whether its update ends a step: those of the first optimizer do, until that is gone or another
        one makes a second update beside it, as where layers are trained one after the other."""
        lead = self._lead()
        if lead not in (None, optimizer) and (self._is_led or id(optimizer) not in self._beside):
            self._beside.add(id(optimizer))
            return False
        if lead is not optimizer:
            self._lead = weakref.ref(optimizer)
        self._beside.clear()
        return True

    def step_ends(self, *, follows_test: bool) -> None:
        """`follows_test`: there was one since the step before."""
        if follows_test and self.loader is None and self.samples:
            # No loader tells where a pass over the data begins: after a test, say.
            self._epoch += 1
        self.samples.append(self._num_samples)
        self.epochs.append(self._epoch)

    def _follow(self, name: str, *losses: int, may_be_late: bool = False) -> None:
        """Of the step under way, or the last one where that has none, the last that were applied."""
        columns = self._followed.setdefault(name, (array("q"), array("q"), array("q")))
        newest, step = (columns[0] or [-1])[-1], len(self.samples)
        step -= may_be_late and newest < step - 1
        for column, value in zip(columns, (step, *losses), strict=True):
            if newest == step:
                column[-1] = value
            else:
                column.append(value)


def size_of(batch: object) -> int | None:
    """Samples of a batch: the length of its first tensor; None where it has none."""
    tensor = _first_tensor(batch)
    return None if tensor is None or not tensor.dim() else tensor.size(0)


def _first_tensor(batch: object) -> Tensor | None:
    for tensor in tensors_in(batch):
        return tensor
    # An object of the script's own holds tensors as attributes.
    return next(tensors_in(list(getattr(batch, "__dict__", {}).values())), None)


def _value_of(number: Tensor) -> float:
    """nan where it has no real value that could be read, as on `meta`."""
    try:
        return float(number.item())
    except (RuntimeError, TypeError):
        return math.nan


def _is_capturing() -> bool:
    """Whether what is called now is not run but becomes part of a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _lr(lr: Any) -> float | None:
    """None where there is none, or where reading it would hold the device up."""
    if isinstance(lr, Tensor):
        return lr.item() if lr.is_cpu else None
    return float(lr) if isinstance(lr, int | float) else None


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
