"""tuned: the eager loop on the CPU, with other code than torch's where that is faster: kernel variants of
layers, and compiled updates of the optimizers that torch has no fused update for on a CPU.

`update.cpp` is compiled once per machine with the C++ compiler found there and kept in the cache; where
there is none, torch's own update is used.
"""

import copy
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainlab.errors import RecordError
from trainlab.machine.host import cache_folder, cpu_model
from trainlab.record.files import replacing, writing
from trainlab.record.schema import Note, note
from trainlab.train.callbacks import Grain, Moments
from trainlab.train.engines.eager import EagerSession, make_training_step
from trainlab.train.engines.engine import Member, Unsuited, Update
from trainlab.train.engines.kernel_variants import (
    TORCH,
    add_note,
    cached_choice,
    faster,
    is_on_cpu,
    record_choice,
    timed_s,
    tune_model,
)
from trainlab.train.evaluation import make_inference_step
from trainlab.train.opaque import opaque_names
from trainlab.train.optimizers import can_be_fused, make_optimizer
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup

NATIVE, ONE = "native", "one"
LONGEST_S = 0.03
"""Of an update whose threads are measured: a longer one is worth sharing."""
FEWEST_UPDATES = 200
"""Of a training that pays for it."""
AT_ONCE = 3
"""Updates of one measurement of threads: the first finds the threads of the other number."""
SOURCE = Path(__file__).with_name("update.cpp")
COMPILERS = ("c++", "g++", "clang++")
"""Tried in this order, after what the environment variable CXX names."""
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"),
    # A product and a sum are rounded apart, so that a result does not depend on how a loop was unrolled.
    "-ffp-contract=off",
    # Roots and choices as vector instructions; no result changes.
    *("-fno-math-errno", "-fno-trapping-math"),
)
COMPILE_TIMEOUT_S = 120
WORTH_COMPILING = 5e8
"""Updates times parameters from which compiling pays: it takes 2 to 3 s and saves 1 to 5 ns of each."""
LEFT_TO_TORCH = ("maximize", "differentiable", "capturable")
"""Options of a group that the compiled update does not know."""


class TunedEngine:
    """Takes one trial at a time and shows every moment of it; results equal eager's to rounding."""

    name = "tuned"
    shows: Grain = "call"
    takes_many = False
    is_program = False

    def open(self, group: Sequence[Member]) -> EagerSession:
        (member,) = group
        _tune_update(member.setup)
        return EagerSession(member, tune_model(member.setup))

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        _tune_update(setup)
        return make_training_step(setup, moments, tune_model(setup))

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        _check(setup)
        return make_inference_step(setup, moments, tune_model(setup))


def _check(setup: Setup) -> None:
    if setup.own is not None:
        raise Unsuited("not_ours", what=setup.own)


def _tune_update(setup: Setup) -> None:
    """Threads, and the optimizer whose update is faster here."""
    _check(setup)
    tune_threads(setup)
    if setup.has_optimizer and isinstance(setup.optimizer, NativeStep):
        return
    loaded = _library_for(setup) if is_on_cpu(setup) else None
    record_choice(setup, "update", TORCH if loaded is None else NATIVE)
    if loaded is not None:
        kind = setup.settings.optimizer
        given = setup.settings, setup.model.parameters(), setup.device
        optimizer = make_optimizer(*given, lambda torchs: native_class(torchs, kind, loaded))
        setup.use_optimizer(optimizer)


def _library_for(setup: Setup) -> ctypes.CDLL | None:
    """None where torch makes the updates: it has a fused one, was asked for one of its own, or alone takes
    such parameters or what a scaler asks; where compiling would not pay; and where it cannot be done.
    Whether it was compiled before plays no part: the same trial must give the same losses again."""
    settings, model = setup.settings, setup.model
    is_ours = settings.optimizer in STATES and settings.optimizer_code == "auto"
    if not is_ours or not can_be_fused(model) or setup.scaler is not None:
        return None
    num_trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    if setup.num_steps * num_trained < WORTH_COMPILING:
        if settings.engine == "tuned":  # else nobody asked for it
            add_note(setup, note("tuned_too_short"))
        return None
    try:
        return library()
    except NoLibraryError as why:
        add_note(setup, Note(code=why.code, values={"error": why.reason}))
        return None


def tune_threads(setup: Setup) -> None:
    """Sets the number of threads with which such a model trains faster here: torch's, or one. Threads that
    share a small operation wait for each other longer than they save, where anything else runs."""
    if not is_on_cpu(setup) or opaque_names(setup.model):  # a copy would be compiled once more
        return
    default, settings = torch.get_num_threads(), setup.settings
    threads = default
    if settings.threads is None and default > 1 and setup.num_steps >= FEWEST_UPDATES:
        facts = (str(setup.model), settings.batch_size, settings.optimizer, settings.precision)
        try:
            choice = cached_choice("threads", facts, lambda: {"threads": _threads(setup, default)})
        except RecordError as error:
            add_note(setup, note("tuned_not_kept", error=str(error)))
            return
        threads = 1 if choice.get("threads") == ONE else default
    torch.set_num_threads(threads)
    record_choice(setup, "threads", threads)


def _threads(setup: Setup, default: int) -> str:
    try:
        with seeded(setup.trial.seed, "tuned"):
            update = _update_of_copy(setup)
            update()
            if timed_s(update) > LONGEST_S:
                return TORCH
            works = {TORCH: default, ONE: 1}
            return faster({n: partial(_updates, of, update) for n, of in works.items()})[0]
    except Exception:  # noqa: BLE001  the user's code, which may raise anything; training will say so
        return TORCH
    finally:
        torch.set_num_threads(default)


def _updates(threads: int, update: Callable[[], None]) -> None:
    torch.set_num_threads(threads)
    for _ in range(AT_ONCE):
        update()


def _update_of_copy(setup: Setup) -> Callable[[], None]:
    """An update of a copy of the model, always on the same samples."""
    model = copy.deepcopy(setup.model).train()
    given = setup.settings, model.parameters(), setup.device
    optimizer = make_optimizer(*given, can_be_fused=can_be_fused(model))
    batches, loss_of, prepare = setup.split_batches, setup.loss, setup.workload.prepare
    rows = batches.first_rows()

    def update() -> None:
        inputs, targets = batches.samples(rows)
        optimizer.zero_grad()
        with setup.autocast():
            loss = loss_of(model(prepare(inputs)), targets)
        loss.backward()
        optimizer.step()

    return update


class NoLibraryError(Exception):
    """There is no compiled code; `code` is that of the note that says why, `reason` its value."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


def find_compiler() -> str | None:
    """The path of a C++ compiler."""
    named = os.environ.get("CXX")
    found = (shutil.which(name) for name in ((named,) if named else COMPILERS))
    return next(filter(None, found), None)


def library() -> ctypes.CDLL:
    """The compiled code from the cache, or compiled now; NoLibraryError where neither can be done."""
    compiler = find_compiler()
    if compiler is None:
        raise NoLibraryError("tuned_no_compiler")
    path = cache_folder() / "native" / f"update-{_key(compiler)}.so"
    try:
        if not path.is_file():
            _compile(compiler, path)
        loaded = ctypes.CDLL(str(path))
        loaded.trainlab_use_threads(*(_threads_of_torch() or (None, None, None)))
    except RecordError as error:
        raise NoLibraryError("tuned_not_kept", str(error)) from None
    except (OSError, AttributeError, subprocess.TimeoutExpired) as error:
        raise NoLibraryError("tuned_compiler_failed", _first_line(str(error))) from None
    return loaded


def _compile(compiler: str, path: Path) -> None:
    """Writes beside and renames: two processes may do so at once."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        done = subprocess.run(
            [compiler, *FLAGS, str(SOURCE), "-o", str(part)],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise NoLibraryError("tuned_compiler_failed", _first_line(done.stderr))


@cache
def _key(compiler: str) -> str:
    """Differs where the machine code may: source, flags, compiler, CPU."""
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=10, check=False
    ).stdout
    facts = (SOURCE.read_bytes(), FLAGS, compiler, version, cpu_model(), platform.machine())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _threads_of_torch() -> tuple[ctypes.c_void_p, ...] | None:
    """What the compiled code calls them by, where torch's OpenMP has GNU's interface; None elsewhere, where
    it starts threads of its own."""
    # Looked up in torch's library first, then in those that it was linked with: another package may have
    # brought another OpenMP, whose threads would stand in the way of torch's.
    place = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        torchs = ctypes.CDLL(str(place))
        found = (torchs.GOMP_parallel, torchs.omp_get_thread_num, torchs.omp_get_num_threads)
    except (OSError, AttributeError):
        return None
    return tuple(ctypes.cast(one, ctypes.c_void_p) for one in found)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


class Options(ctypes.Structure):
    """`Options` in update.cpp; `first` is rho or alpha."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("lr", "first", "eps", "weight_decay", "momentum")),
        ("centered", ctypes.c_int64),
    )


STATES: Mapping[str, tuple[str, str, str]] = {
    "adadelta": ("square_avg", "acc_delta", ""),
    "rmsprop": ("square_avg", "grad_avg", "momentum_buffer"),
}
"""What torch's optimizers keep of a parameter, in the order of update.cpp, whose kinds are numbered so."""


class NativeStep(Optimizer):
    """torch's optimizer with its update in compiled code: one pass over memory instead of ten. State and
    options are torch's; so is the first update, which makes the state, and every other that the
    compiled code cannot make. Stands before torch's class among the bases."""

    library: ClassVar[ctypes.CDLL]
    kind: ClassVar[str]

    def step(self, closure: Any = None) -> Any:
        """Makes one update of every parameter that has a gradient."""
        groups = [] if closure is not None else [*map(self._laid_out, self.param_groups)]
        if closure is not None or None in groups:
            function = super().step.__func__  # type: ignore[attr-defined]
            # Without telling hooks once more, where torch has wrapped its own class as well.
            function = function.__wrapped__ if getattr(function, "hooked", False) else function
            return function(self, closure)
        kind = [*STATES].index(self.kind)
        for group, numbers in zip(self.param_groups, groups, strict=True):
            assert numbers is not None
            options = Options(
                float(group["lr"]),
                group["rho" if self.kind == "adadelta" else "alpha"],
                group["eps"],
                group["weight_decay"],
                group.get("momentum", 0.0),
                bool(group.get("centered", False)),
            )
            self.library.trainlab_update(
                kind,
                ctypes.c_void_p(numbers.buffer_info()[0]),
                ctypes.c_int64(len(numbers) // 7),
                ctypes.byref(options),
                ctypes.c_int64(torch.get_num_threads()),
            )
            changed = [one for one in group["params"] if one.grad is not None]
            torch.autograd.graph.increment_version(changed)
        return None

    def _laid_out(self, group: Mapping[str, Any]) -> "array[int] | None":
        """Where the numbers of a group lie, seven for each parameter: `Tensor` in update.cpp. None where
        this update is torch's to make."""
        if any(group.get(name) for name in LEFT_TO_TORCH):
            return None
        numbers = array("q")
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state.get(parameter) or {}
            kept = [state.get(name) for name in STATES[self.kind]]
            used = [parameter, parameter.grad, *[one for one in kept if one is not None]]
            step = state.get("step")
            if kept[0] is None or not isinstance(step, Tensor) or step.dtype != torch.float32:
                return None
            if not all(_is_plain(one, parameter.numel()) for one in used):
                return None
            numbers.extend((parameter.data_ptr(), parameter.grad.data_ptr()))
            numbers.extend(0 if one is None else one.data_ptr() for one in kept)
            numbers.extend((step.data_ptr(), parameter.numel()))
        return numbers


def native_class(torch_class: type[Optimizer], kind: str, library: ctypes.CDLL) -> type[Optimizer]:
    """torch's optimizer of that class, its update made by the library."""
    members = {"library": library, "kind": kind}
    # Under torch's name: a profile then shows the same row for both.
    return type(torch_class.__name__, (NativeStep, torch_class), members)


def _is_plain(tensor: Tensor, size: int) -> bool:
    """So many float32 one after the other in the CPU's memory: zeros that have none are left to torch."""
    is_ours = tensor.dtype == torch.float32 and tensor.is_cpu and tensor.numel() == size
    return is_ours and tensor.is_contiguous() and tensor.data_ptr() != 0
