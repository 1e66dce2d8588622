"""TrainSpec: the settings of one training trial, and how a workload's defaults fill them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from trainlab.spec.base import Setting, Spec, checked, did_you_mean, setting_of
from trainlab.spec.optimizers import OPTIMIZERS, OptimizerName, optimizer_problems

Scalar = bool | int | float | str


def pairs_of(value: object) -> Any:
    """The text `hidden=64,bias=true` as a mapping, as a study file gives it; all else unchanged."""
    if not isinstance(value, str):
        return value
    pairs: dict[str, Scalar] = {}
    for part in filter(None, (p.strip() for p in value.split(","))):
        name, equals, text = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"got {part!r}, must be name=value pairs, as in hidden=64,bias=true")
        pairs[name.strip()] = scalar_of(text.strip())
    return pairs


def _numbers(value: object) -> object:
    pairs = pairs_of(value)
    for name, number in pairs.items() if isinstance(pairs, dict) else ():
        if not isinstance(number, bool | int | float):
            raise ValueError(f"{name}: got {number!r}, must be a number, true or false")
    return pairs


def scalar_of(text: str) -> Scalar:
    """A word of a command line as true or false, a number, or itself."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


DATA_CHOICES = ("auto", "full", "bundled")
"""What `data` may be beside a folder, for a built-in workload."""

TIMED_WHOLE = frozenset({"graphed", "lanes"})
"""Engines whose steps have no phases and layers that could be looked at: they can only be timed whole."""

DEVICE = r"auto|cpu|mps|cuda(:\d+)?"


def _device(value: str) -> str:
    if not re.fullmatch(DEVICE, value):
        names = ("auto", "cpu", "mps", "cuda")
        hint = did_you_mean(value.partition(":")[0], names, {"gpu": "cuda", "nvidia": "cuda"})
        raise ValueError(f"got {value!r}, must be auto, cpu, mps, cuda or cuda:N{hint}")
    return value


_ALONE = ("processes", "programs")
_OF_UPDATE = (*_ALONE, "own_update")
_Pairs = Annotated[dict[str, Scalar], BeforeValidator(pairs_of)]
_OF_BATCHES = ("batch_size", "steps_per_epoch", "log_every_steps")
_OF_DATA = (*_OF_BATCHES, "data_resident", "tuned", "data.num_train")


class TrainSpec(Spec):
    """How one trial trains. Every field is a setting, and later a factor that can be varied."""

    epochs: Annotated[
        PositiveInt, Setting("epochs", aka="num_epochs n_epochs", resolves_to=("tuned",))
    ] = 1
    """Passes over the training set."""
    max_steps: Annotated[
        PositiveInt | None,
        Setting("updates", not_by=("programs",), aka="steps num_steps max_updates max_iters"),
    ] = None
    """Train for so many updates, however many passes that takes; not given: for epochs."""
    batch_size: Annotated[
        PositiveInt,
        Setting("samples", aka="bs batch train_batch_size", resolves_to=(*_OF_BATCHES, "tuned")),
    ] = 64
    """Training samples per batch."""
    accumulate: Annotated[
        PositiveInt,
        Setting(
            "batches",
            not_by=_OF_UPDATE,
            aka="accumulate_grad_batches gradient_accumulation_steps accum_steps",
            resolves_to=_OF_BATCHES,
        ),
    ] = 1
    """Batches whose mean gradient makes one update: as a larger batch, in the memory of one."""
    test_batch_size: Annotated[
        PositiveInt, Setting("samples", changes_learning=False, resolves_to=("tuned",))
    ] = 1000
    """Test samples per forward pass; does not change the result."""
    optimizer: Annotated[
        OptimizerName, Setting(aka="opt optim", resolves_to=("optimizer_code", "tuned"))
    ] = "adam"
    """The update rule."""
    lr: Annotated[
        PositiveFloat | None,
        Setting("rate", is_of_optimizer=True, aka="learning_rate learningrate step_size"),
    ] = None
    """Learning rate at the start; not given: the optimizer's own default."""
    momentum: Annotated[
        NonNegativeFloat | None, Field(lt=1), Setting("factor", is_of_optimizer=True)
    ] = None
    """Momentum, for sgd and rmsprop."""
    weight_decay: Annotated[
        NonNegativeFloat | None, Setting("factor", is_of_optimizer=True, aka="wd decay l2")
    ] = None
    """L2 penalty (decoupled for adamw); not given: the optimizer's own default."""
    optimizer_options: Annotated[
        dict[str, bool | int | float],
        BeforeValidator(_numbers),
        Setting("name=value", holds_commas=True, is_of_optimizer=True),
    ] = {}
    """Further options of the optimizer, as rho=0.9,eps=1e-6."""
    optimizer_code: Annotated[
        Literal["auto", "fused", "foreach", "loop"],
        Setting(changes_learning=False, is_of_optimizer=True, resolves_to=("tuned",)),
    ] = "auto"
    """Which of torch's implementations of the same update; auto: fused where there is one."""
    schedule: Annotated[
        Literal["none", "step", "cosine"], Setting(aka="scheduler lr_schedule lr_scheduler")
    ] = "none"
    """How the learning rate changes after each epoch; cosine falls to 0 over all epochs."""
    lr_gamma: Annotated[float, Field(gt=0, le=1), Setting("factor", aka="gamma lr_decay")] = 0.1
    """Step schedule: the learning rate is multiplied by this."""
    lr_step_epochs: Annotated[PositiveInt, Setting("epochs")] = 1
    """Step schedule: how many epochs lie between two multiplications."""
    warmup_steps: Annotated[
        NonNegativeInt, Setting("updates", not_by=("programs",), aka="warmup num_warmup_steps")
    ] = 0
    """The learning rate rises over so many updates, in equal parts, to what lr and schedule say."""
    clip_grad_norm: Annotated[
        PositiveFloat | None,
        Setting("norm", not_by=_OF_UPDATE, aka="clip grad_clip max_grad_norm gradient_clip_val"),
    ] = None
    """Scale the gradient of an update down to this norm, over all parameters, where it is larger."""
    ema: Annotated[
        PositiveFloat | None,
        Field(lt=1),
        Setting("decay", not_by=_ALONE, aka="ema_decay weight_averaging"),
    ] = None
    """Test and keep a moving average of the weights: after each update this much of it and the rest of the
    new ones, as 0.999; not given: the weights themselves."""
    zero_grad: Annotated[bool, Setting("true|false")] = True
    """Reset gradients before each update; false lets them pile up (it then fails to learn)."""
    device: Annotated[
        str,
        AfterValidator(_device),
        Field(json_schema_extra={"pattern": f"^({DEVICE})$"}),
        Setting(
            changes_learning=False,
            # A device brings its threads and its implementation of the update along.
            resolves_to=("device_name", "threads", "data_resident", "optimizer_code", "tuned"),
        ),
    ] = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto picks the accelerator if there is one."""
    seed_parts: Literal["all", "weights", "order", "dropout"] = "all"
    """What a trial's seed changes: all that is random, or one part of it, the others being held as with
    seed 0. Give several to learn where the spread between seeds comes from."""
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"], Setting(aka="dtype amp", resolves_to=("tuned",))
    ] = "fp32"
    """bf16 and fp16 are autocast with fp32 weights; fp16 with a loss that is scaled against underflow."""
    engine: Annotated[
        Literal["auto", "eager", "tuned", "graphed", "lanes", "compiled"],
        Setting(changes_learning=False, resolves_to=("optimizer_code", "tuned")),
    ] = "auto"
    """How updates are made: eager (operation by operation), tuned (on a CPU, with the code measured to be
    fastest there), graphed (the whole step as one CUDA graph), lanes (many trials as one vectorised
    program) or compiled (torch.compile). auto: the fastest that can train the model; a cost is measured by
    eager unless another is named."""
    threads: Annotated[
        PositiveInt | None,
        Setting(
            "threads", changes_learning=False, aka="num_threads n_threads", resolves_to=("tuned",)
        ),
    ] = None
    """Threads for torch on the CPU; not given: torch's choice. It changes rounding: keep it equal."""
    processes: Annotated[
        PositiveInt,
        Setting(
            "processes",
            option="data_parallel",  # --processes are those of a measurement
            aka="world_size nproc nproc_per_node data_parallel ranks",
            resolves_to=("backend",),
        ),
    ] = 1
    """Processes that train one trial together, data parallel: each takes its share of every batch, on a GPU
    of its own or on the CPU with `threads` each (not given: 1)."""
    allocator: Annotated[
        Literal["keep", "system"],
        Setting(changes_learning=False, resolves_to=("allocator_keeps_memory",)),
    ] = "keep"
    """keep: freed CPU memory stays with the process (on Linux; steps are up to 3 times faster)."""
    denormals: Annotated[
        Literal["flush", "keep"],
        Setting(changes_learning=False, resolves_to=("flushes_denormals",)),
    ] = "flush"
    """flush: numbers below 1e-38 count as 0 on the CPU (Adadelta gets there and becomes 3 times slower)."""
    log_every_steps: Annotated[
        PositiveInt | None, Setting("updates", is_factor=False, changes_learning=False)
    ] = None
    """Updates between two points of the training curve; not given: about 50 points an epoch."""
    data: Annotated[
        str, Setting("which", is_factor=False, holds_commas=True, changes_learning=False)
    ] = "auto"
    """full, bundled (a subset), a folder, or auto: full if it can be had, else bundled."""
    train_samples: Annotated[
        PositiveInt | None,
        Setting(
            "samples",
            aka="num_samples train_size max_samples limit",
            resolves_to=(*_OF_DATA, "data.is_subset"),
        ),
    ] = None
    """Train on so many samples only, drawn once, the same for every seed; a smaller number is part of a
    larger one. Not given: all."""
    val_fraction: Annotated[
        NonNegativeFloat,
        Field(lt=1),
        Setting(
            "share",
            is_said=True,
            aka="val_split validation_split validation_fraction",
            resolves_to=(*_OF_DATA, "data.num_val"),
        ),
    ] = 0.0
    """Hold this share of the training samples out for validation, the same ones for every seed."""
    patience: Annotated[
        PositiveInt | None, Setting("epochs", not_by=_ALONE, aka="early_stopping early_stop")
    ] = None
    """Stop once the validation loss has not been lower for so many epochs; not given: train to the end."""
    keep_best: Annotated[
        bool, Setting("true|false", not_by=_ALONE, aka="restore_best_weights save_best")
    ] = False
    """The result is the epoch with the lowest validation loss, and its weights are kept; else the last."""
    model: Annotated[
        _Pairs,
        Setting(
            "name=value",
            holds_commas=True,
            resolves_to=("num_parameters", "num_trainable", "tuned"),
        ),
    ] = {}
    """Parameters of the workload's model, as hidden=256."""
    loss: Annotated[_Pairs, Setting("name=value", holds_commas=True)] = {}
    """Parameters of the workload's loss or step, as label_smoothing=0.1; varied as loss.label_smoothing."""
    data_options: Annotated[
        _Pairs,
        Setting(
            "name=value",
            holds_commas=True,
            resolves_to=(*_OF_DATA, "data.name", "data.num_test", "data.num_val", "data.is_subset"),
        ),
    ] = {}
    """Parameters of the workload's data function, as fraction=0.1; varied as data.fraction."""
    script: Annotated[_Pairs, Setting(holds_commas=True, is_of_scripts=True)] = {}
    """Of a script that is watched: its own arguments that are varied, by name without dashes, and variables
    of its environment as env.NAME."""
    change: Annotated[str, Setting(changes_learning=False, is_of_scripts=True)] = ""
    """Of a script that is watched: the one thing that is changed from outside, as `threads=1`."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TrainSpec":
        given = self.optimizer, self.momentum, self.optimizer_options, self.optimizer_code
        problems = list(optimizer_problems(*given))
        problems += self._process_problems() if self.processes > 1 else ()
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _process_problems(self) -> Iterator[str]:
        for name in self.set_beyond("processes"):
            got = getattr(self, name)
            yield f"{name}: got {got}, but only one process can train so; use processes 1"
        if self.precision == "fp16":
            yield "precision: got fp16, but only one process can train so; use bf16 or processes 1"
        got = f"processes: got {self.processes}"
        if self.engine not in ("auto", "eager"):
            yield f"{got}, but engine {self.engine} trains in one; use engine auto or eager"
        if self.batch_size < self.processes:
            yield f"{got}, but a batch has {self.batch_size}; use at most one process per sample"

    @property
    def start_lr(self) -> float:
        return OPTIMIZERS[self.optimizer].lr if self.lr is None else self.lr

    def is_set(self, name: str) -> bool:
        """Whether a setting is another than its default."""
        return bool(getattr(self, name) != TrainSpec.model_fields[name].default)

    def set_beyond(self, unable: str) -> list[str]:
        """The settings that are set and that `unable`, as in `Setting.not_by`, cannot do."""
        return [
            n for n in OF_WORKLOADS if unable in setting_of(TrainSpec, n).not_by and self.is_set(n)
        ]

    @property
    def learning(self) -> dict[str, Any]:
        """The settings that change what is learned."""
        return {n: value for n, value in self.meaning.items() if n not in NOT_OF_LEARNING}

    @property
    def meaning(self) -> dict[str, Any]:
        """All settings, with the learning rate that applies: equal where two trials would be the same."""
        return self.model_dump(mode="json") | {"lr": self.start_lr}


NOT_OF_LEARNING = frozenset(
    name for name in TrainSpec.model_fields if not setting_of(TrainSpec, name).changes_learning
)
OF_WORKLOADS = tuple(
    name for name in TrainSpec.model_fields if not setting_of(TrainSpec, name).is_of_scripts
)
"""Those of workloads; the others are set by watching a script."""


def script_only(asked: Iterable[str]) -> Iterator[str]:
    """What is asked for of a workload that only a script has."""
    for name in asked:
        outer = name.partition(".")[0]
        if outer in TrainSpec.model_fields and outer not in OF_WORKLOADS:
            yield f"{name}: is for scripts alone; use `trainlab watch`"


def settings_for(defaults: Mapping[str, Any], requested: Mapping[str, Any]) -> TrainSpec:
    """A workload's defaults overridden by the settings asked for. Asking for another optimizer drops those
    tuned for the workload's own: Adadelta's learning rate of 1.0 would wreck Adam."""
    own = defaults.get("optimizer", TrainSpec.model_fields["optimizer"].default)
    if requested.get("optimizer", own) != own:
        defaults = {
            n: v for n, v in defaults.items() if not setting_of(TrainSpec, n).is_of_optimizer
        }
    return checked(TrainSpec, {**defaults, **requested})
