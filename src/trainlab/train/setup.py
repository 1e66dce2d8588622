"""Setup: a trial's model, data and optimizer, ready on the device."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy as has_no_shape
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from trainlab.data.dataset import Dataset, Loaded, Split
from trainlab.errors import WorkloadError
from trainlab.machine.device import device_name, pick_device
from trainlab.machine.environment import tf32_modes
from trainlab.machine.process_state import prepare_process, process_state
from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note, Value, note
from trainlab.spec import TrainSpec
from trainlab.train.batches import AccumulatedBatches, Batches, Rank, SplitBatches
from trainlab.train.callbacks import Arguments, TrialView
from trainlab.train.dataloading import make_batches
from trainlab.train.opaque import uncompiled_copy
from trainlab.train.seeds import seeded
from trainlab.train.updates import (
    Optimizers,
    Warmup,
    make_optimizer,
    make_schedule,
    optimizer_code,
    own_optimizers,
)
from trainlab.workloads.user_code import DATA, PREPARE
from trainlab.workloads.workload import Workload, takes_carried

POINTS_PER_EPOCH = 50
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
MIN_STEPS_PER_POINT = 5
"""A point waits for the device; more often than this it would slow small models down."""


@dataclass(frozen=True)
class Setup:
    """What an engine works on."""

    trial: Trial
    workload: Workload
    dataset: Dataset
    device: torch.device
    model: nn.Module
    train_batches: Batches
    test_batches: Batches
    val_batches: Batches | None
    notes: list[Note]
    """What could not be done, and why; ends up in the trial's record."""
    engine_facts: dict[str, Any] = field(default_factory=dict)
    """What an engine has decided on this machine; ends up in the trial's `resolved`."""

    def note_once(self, code: str, **values: Value) -> None:
        """Records what could not be done, unless it has been."""
        if (one := note(code, **values)) not in self.notes:
            self.notes.append(one)

    @property
    def own(self) -> str | None:
        """What of the trial is not as every engine can take it, by the workload's field."""
        return self.workload.own or (None if self.dataset.is_tensors else "data")

    @property
    def forward_batches(self) -> Batches:
        """Those of the training set as the model gets them; an update may take several."""
        batches = self.train_batches
        return batches.each if isinstance(batches, AccumulatedBatches) else batches

    @property
    def split_batches(self) -> SplitBatches:
        """The same, for who has seen that they are tensors."""
        batches = self.forward_batches
        assert isinstance(batches, SplitBatches)
        return batches

    @property
    def num_steps(self) -> int:
        """Updates from the start of the trial to its end, where nothing stops it."""
        return self.settings.max_steps or self.settings.epochs * len(self.train_batches)

    @property
    def num_epochs(self) -> int:
        """Passes over the training set that those take, the last of them perhaps not to its end."""
        return -(-self.num_steps // len(self.train_batches))

    @cached_property
    def loss(self) -> Callable[[Any, Any], Tensor]:
        """The workload's; a module, say one with weights for classes, as a copy on the device."""
        loss = self.workload.loss
        assert loss is not None
        return copy.deepcopy(loss).to(self.device) if isinstance(loss, nn.Module) else loss

    @cached_property
    def optimizers(self) -> Optimizers:
        """Made when first needed: inference needs none, and torch then imports for a second."""
        if (own := self.workload.optimizer) is not None:
            several = self.workload.update is not None
            return own_optimizers(own, self.model, self.settings, may_be_several=several)
        return Optimizers({"optimizer": make_optimizer(self.settings, self.model, self.device)})

    @cached_property
    def schedule(self) -> Any:
        """What changes the learning rate; None where nothing does. To be asked for before the first update,
        since torch's schedules count them; and only to train, since they wrap the optimizer's step."""
        if self.workload.optimizer is not None:
            return self.optimizers.schedule
        return make_schedule(self.settings, self.optimizer, self.num_epochs)

    @cached_property
    def warmups(self) -> Sequence[Warmup]:
        """What raises the learning rates, update by update, where the settings ask for it."""
        num_steps = self.settings.warmup_steps
        return [Warmup(one, num_steps) for one in self.optimizers.by_name.values() if num_steps > 1]

    @cached_property
    def scaler(self) -> torch.amp.GradScaler | None:
        """What keeps small gradients from becoming 0 in fp16."""
        return torch.amp.GradScaler(self.device.type) if self.settings.precision == "fp16" else None

    @cached_property
    def average(self) -> AveragedModel | None:
        """The moving average of the weights, where the settings ask for one."""
        if self.settings.ema is None:
            return None
        model = getattr(self.model, "_orig_mod", self.model)  # of a compiled one
        return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(self.settings.ema))

    @property
    def has_optimizer(self) -> bool:
        return "optimizers" in vars(self)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The only one, or the first."""
        return next(iter(self.optimizers.by_name.values()))

    def use_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Another one that makes the same updates, in place of the one that would be made."""
        vars(self)["optimizers"] = Optimizers({"optimizer": optimizer})

    @property
    def settings(self) -> TrainSpec:
        return self.trial.settings

    @property
    def log_every_steps(self) -> int:
        """Updates between two points of the curve."""
        auto = max(MIN_STEPS_PER_POINT, len(self.train_batches) // POINTS_PER_EPOCH)
        return self.settings.log_every_steps or auto

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that forward and loss run in."""
        dtype = AUTOCAST.get(self.settings.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def view(self, folder: TrialFolder, steps_before: int = 0) -> TrialView:
        """What instruments get to see; their records go to this folder."""
        test, untouched = self.dataset.test, None
        with suppress(Exception):  # before anything is called, and before others hook into it
            untouched = uncompiled_copy(self.model)
        return TrialView(
            trial=self.trial,
            device=self.device,
            model=self.model,
            folder=folder,
            num_steps=self.num_steps,
            num_epochs=self.num_epochs,
            samples_by=self.train_batches.samples_by,
            stored_inputs=lambda count: test.inputs[:count] if isinstance(test, Split) else None,
            model_call=partial(self._model_call, untouched),
            notes=self.notes,
            steps_before=steps_before,
        )

    def _model_call(self, untouched: nn.Module | None, count: int) -> tuple[nn.Module, Arguments]:
        """With so many test samples of tensors, prepared; else with what the workload's own function calls
        the model with, for a batch; WorkloadError where it does not call the model as a whole."""
        model = copy.deepcopy(self.model if untouched is None else untouched)
        test, own = self.dataset.test, self.workload.evaluate or self.workload.step
        if own is None:
            if isinstance(test, Split):
                stored = test.inputs[:count].to(self.device, copy=True)
            else:
                stored = self.test_batches.sample()[0]
            with PREPARE:
                return model, ((self.workload.prepare(stored),), {})
        calls: list[Arguments] = []
        hook = model.eval().register_forward_pre_hook(
            lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
        )
        _run_as_in_test(self.workload, model, self.test_batches.sample())
        hook.remove()
        if not calls:
            raise WorkloadError("the workload calls parts of its model, not the whole")
        return model, calls[0]

    def resolved(self) -> dict[str, Any]:
        """What the settings became on this machine; recorded, so that differences between runs show."""
        parameters, train = list(self.model.parameters()), self.dataset.train
        is_shuffled = isinstance(train, Split) or train.shuffle or train.sampler is not None
        code = optimizer_code(self.settings, self.model, self.device)
        return {
            "device": str(self.device),
            "device_name": device_name(self.device),
            "lr": self.settings.start_lr,
            **({} if self.workload.optimizer is not None else {"optimizer_code": code}),
            "log_every_steps": self.log_every_steps,
            "steps_per_epoch": len(self.train_batches),
            "batch_size": min(self.train_batches.batch_size, self.train_batches.num_samples),
            "code": self.workload.code,
            "num_parameters": sum(p.numel() for p in parameters),
            "num_trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "data_resident": self.train_batches.resident,
            "processes": self.settings.processes,
            "shuffle": is_shuffled,
            "tf32": tf32_modes(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            **process_state(),
        }


def set_up(
    trial: Trial,
    workload: Workload,
    dataset: Dataset,
    notes: list[Note] | None = None,
    engine_facts: dict[str, Any] | None = None,
    rank_number: int = 0,
) -> Setup:
    """Everything a trial needs before its first update; initial weights derive from its seed alone.
    `rank_number`: which of the trial's processes this is."""
    settings = trial.settings
    workload = workload.with_loss(settings.loss)
    prepare_process(settings)
    device, rank = pick_device(settings.device), Rank(number=rank_number, of=settings.processes)
    if rank.of > 1 and workload.own is not None:
        raise WorkloadError(
            f"processes: got {rank.of}, but {workload.own} is the workload's own; several processes train "
            "by loss and the settings' optimizer only: use processes=1"
        )
    if device.type == "cuda":
        if rank.of > 1:
            device = torch.device("cuda", (device.index or 0) + rank.number)
        torch.cuda.set_device(device.index or 0)  # events and streams are the current device's
    with seeded(trial.seed_of("weights"), "weights"):
        # On the CPU first: the same seed gives the same weights on every device.
        model = workload.build(settings.model)
        if any(map(has_no_shape, (*model.parameters(), *model.buffers()))):
            batches = make_batches(dataset.test, settings.test_batch_size, torch.device("cpu"))
            _give_shapes(model, workload, batches.sample())
    model.to(device)
    test_size, val = settings.test_batch_size, dataset.val
    with DATA:
        train_batches = make_batches(
            dataset.train,
            settings.batch_size,
            device,
            rank,
            drop_last=dataset.drop_last,
            per_update=settings.accumulate,
        )
        test_batches = make_batches(dataset.test, test_size, device)
        val_batches = None if val is None else make_batches(val, test_size, device)
    notes = [] if notes is None else notes
    if isinstance(dataset.train, Loaded):
        if dataset.train.makes_batches:
            notes.append(note("data_own_batches", size=train_batches.batch_size))
        own, used = dataset.train.loader_batch_size, settings.batch_size
        if own not in (None, used) and used == TrainSpec.model_fields["batch_size"].default:
            # Nobody set it, and the user's loader was made with another.
            notes.append(note("loader_batch_size", own=own, used=used))
    return Setup(
        trial=trial,
        workload=workload,
        dataset=dataset,
        device=device,
        model=model,
        train_batches=train_batches,
        test_batches=test_batches,
        val_batches=val_batches,
        notes=notes,
        engine_facts={} if engine_facts is None else engine_facts,
    )


def _give_shapes(model: nn.Module, workload: Workload, batch: Any) -> None:
    """To the parameters of torch's lazy modules, as `nn.LazyLinear`, by one forward pass as in a test, so
    that nothing else changes. They are drawn as all others are: it must run where the model's own weights
    are drawn, on the CPU."""
    was_training = model.training
    _run_as_in_test(workload, model.eval(), batch)
    model.train(was_training)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if has_no_shape(tensor):
            where = f"{workload.name}: model.{name}"
            raise WorkloadError(
                f"{where}: has no shape after a batch, must get one in a forward pass of the test; "
                "give its layer a size"
            )


def _run_as_in_test(workload: Workload, model: nn.Module, batch: Any) -> None:
    own = workload.evaluate or workload.step
    with torch.no_grad():
        if own is None:
            model(workload.prepare(batch[0]))
        else:
            own(model, batch, *(({},) if takes_carried(own) else ()))
