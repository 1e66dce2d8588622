"""One trial in several processes, data parallel: each takes its share of every batch, and all make the same
update with the mean of their gradients.

The first process is the worker itself. It runs the loop, tests, and writes all records; the others, its
followers, take part in the updates and nothing else.
"""

import copy
import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, NoReturn

import numpy as np
import psutil
import torch
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from trainlab.errors import TrainlabError, WorkloadError
from trainlab.machine.process_state import prepare_process
from trainlab.machine.processes import end_with_parent, own_streams, signal_name
from trainlab.plan import Trial
from trainlab.record.schema import note
from trainlab.spec import Spec
from trainlab.train.batches import Rank
from trainlab.train.callbacks import Moments, Progress
from trainlab.train.engines.eager import EagerEngine, EagerSession, Step, make_training_step
from trainlab.train.engines.engine import Member, State, Update
from trainlab.train.loader import Loader
from trainlab.train.metering import Means, Meter
from trainlab.train.seeds import derived_seed, seeded
from trainlab.train.setup import Setup, set_up
from trainlab.train.step import CallModel, Outcome

FOLLOW = "from trainlab.train.engines.ddp import follow; follow()"
"""What a process of a trial other than the first runs."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def backend_for(device: torch.device) -> str:
    """The library that exchanges gradients between devices of that kind."""
    return "nccl" if device.type == "cuda" else "gloo"


def join(rank: Rank, store: Path, device: torch.device) -> None:
    """Waits until all processes have come. They meet in a file and exchange over the loopback interface."""
    with _over_loopback():
        distributed.init_process_group(
            backend_for(device),
            store=FileStore(str(store), rank.of),
            rank=rank.number,
            world_size=rank.of,
        )


def leave() -> None:
    """The processes part; the others may be gone already."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def in_parallel(model: nn.Module, device: torch.device) -> DistributedDataParallel:
    """The model, its gradients averaged over all processes as they are computed; all begin with the weights
    of the first. Every update looks which parameters it has reached: that may differ between processes, and
    one that waits for a gradient that never comes takes all down."""
    warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
    indices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, indices, find_unused_parameters=True)


@contextmanager
def _over_loopback() -> Iterator[None]:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    missing = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, LOOPBACK))
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


# Means over the batches of all processes.


class SharedMeter(Meter):
    """Adds up the shares of this process. All processes ask for means at the same time and get the same."""

    def means(self) -> Means:
        self._reduce()
        counts = torch.cat(self._reduced_counts)
        weighted = torch.cat(self._reduced_losses) * counts
        every = torch.cat([self._sums, weighted, counts])
        distributed.all_reduce(every)
        num_sums, num_steps = len(self._sums), len(counts)
        self._sums, weighted, counts = every.split([num_sums, num_steps, num_steps])
        self._reduced_losses, self._reduced_counts = [weighted / counts], [counts]
        self._num_samples = int(counts.sum())
        return super().means()


# A look at a model and its loss before several processes train it, on a copy: nothing is changed.

NUM_SAMPLES = 48
STIRRED = 0.05
"""How far weights are moved, as a standard deviation."""
TOLERANCE = 1e-3
"""Relative, beyond rounding of a mean of so few."""


def check_mean_of_parts(setup: Setup) -> None:
    """WorkloadError where the loss of a batch is not the mean over its samples: the mean of what several
    processes find in their shares would be another loss. A model that cannot be copied is not looked at."""
    try:
        model = copy.deepcopy(setup.model).eval()
    except Exception:  # noqa: BLE001  the model's own
        return
    inputs, targets = _samples(setup)
    devices = [setup.device] if setup.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        _stir(model)
        whole = _loss(setup, model, inputs, targets)
        means = [_mean_of_parts(setup, model, inputs, targets, size) for size in (1, 2, 5)]
    for mean in filter(math.isfinite, means):
        if math.isfinite(whole) and not math.isclose(whole, mean, rel_tol=TOLERANCE, abs_tol=1e-6):
            raise WorkloadError(
                f"loss: gave {whole:.6g} for a batch and {mean:.6g} as the mean of its parts (it, or the "
                "model, mixes samples), so several processes would train something else; use processes=1"
            )


def _stir(model: nn.Module) -> None:
    """Moves the weights a little: where an output layer starts at zero, all samples have the same loss."""
    draw = torch.Generator().manual_seed(0)
    for one in model.parameters():
        if one.is_floating_point():
            noise = torch.randn(one.shape, generator=draw, dtype=torch.float32)
            one.add_(STIRRED * noise.to(one.device, one.dtype))


def _mean_of_parts(
    setup: Setup, model: nn.Module, inputs: Tensor, targets: Tensor, size: int
) -> float:
    """NaN where a model takes no batch of that size."""
    total = 0.0
    for part, told in zip(inputs.split(size), targets.split(size), strict=True):
        try:
            total += len(told) * _loss(setup, model, part, told)
        except Exception:  # noqa: BLE001  the model's own
            return math.nan
    return total / len(targets)


def _samples(setup: Setup) -> tuple[Tensor, Tensor]:
    """From all over the training set, which may be sorted."""
    batches = setup.split_batches
    rows = torch.linspace(0, batches.num_samples - 1, min(NUM_SAMPLES, batches.num_samples))
    return batches.samples(rows.long())


def _loss(setup: Setup, model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    with setup.autocast():
        # A copy: the inputs may be changed in place.
        return float(setup.loss(model(setup.workload.prepare(inputs.clone())), targets))


# Followers: the other processes of a trial, as its first process starts, tells and ends them.

PREFIX = "trainlab-crew-"
"""Of temporary folders."""
PATIENCE_S = 2.0
"""How long one that has lost its connection may take to end."""


class Task(Spec):
    """What a follower is told when it starts."""

    trial: Trial
    rank: Rank
    store: str
    """The file in which the processes meet."""
    path: tuple[str, ...]
    """Where the first process finds modules, looked at last."""


class ProcessLostError(TrainlabError):
    """A process of the trial has ended before it."""


class Followers:
    """Of one trial. They import and set it up while the first process does."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self._number = trial, trial.settings.processes
        _remove_left_behind()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._are_ready = False
        try:
            for number in range(1, self._number):
                self._processes.append(self._started(Rank(number=number, of=self._number)))
        except BaseException:
            self.close()
            raise

    def _started(self, rank: Rank) -> "subprocess.Popen[bytes]":
        environment, threads = dict(os.environ), self.trial.settings.threads
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        path = tuple(sys.path)
        task = Task(trial=self.trial, rank=rank, store=str(self.store), path=path)
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", FOLLOW),
                task.model_dump_json(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )

    @property
    def folder(self) -> Path:
        """For files that they share; gone with them."""
        return Path(self._folder.name)

    @property
    def store(self) -> Path:
        """The file in which the processes meet."""
        return self.folder / "store"

    def wait_until_ready(self) -> None:
        """Until all have set the trial up; ProcessLostError where one has ended."""
        for process in () if self._are_ready else self._processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise self.lost()
        self._are_ready = True

    def tell(self, command: str, **values: Any) -> None:
        """The same to all; see `_Follower`."""
        line = json.dumps([command, values]).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # its connection is lost as well, which is noticed
                process.stdin.write(line)

    def lost(self) -> ProcessLostError:
        """Which of them has ended, and how."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not (ended := self._ended()) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        if not ended:
            return ProcessLostError("processes: the connection between them broke")
        number, code = ended[0]
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        return ProcessLostError(
            f"processes: number {number} of {self._number} {how}; its error is in the log"
        )

    def close(self) -> None:
        """Ends all."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
        self._folder.cleanup()

    def _ended(self) -> list[tuple[int, int]]:
        """Those that have, by number from 2, with their exit codes."""
        codes = ((number, one.poll()) for number, one in enumerate(self._processes, start=2))
        return [(number, code) for number, code in codes if code is not None]


def _remove_left_behind() -> None:
    """The folders of processes that were killed and could not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = owner.isdecimal() and folder.lstat().st_uid == os.getuid()
            if is_ours and not psutil.pid_exists(int(owner)):
                rmtree(folder)


_ahead: Followers | None = None


def start_ahead(trial: Trial) -> None:
    """Starts the followers of a trial that this process will run, and waits until they stand ready: nothing
    of their start is left to disturb what is measured."""
    global _ahead
    _ahead = Followers(trial)
    with suppress(ProcessLostError):  # told when they are needed
        _ahead.wait_until_ready()


def followers_of(trial: Trial) -> Followers:
    """Those that were started ahead, or new ones."""
    global _ahead
    found, _ahead = _ahead, None
    if found is not None and found.trial == trial:
        return found
    if found is not None:
        found.close()
    return Followers(trial)


# The crew: all processes of a trial once they have joined, as the first of them has it.


class Crew:
    """Of one set-up."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.num_steps = 0
        """Steps that were made one by one since the others run freely."""
        self._followers = followers_of(setup.trial)
        self.tell = self._followers.tell
        try:
            self.model = self._joined()
        except BaseException:
            self.close()
            raise

    def _joined(self) -> DistributedDataParallel:
        """Once all stand ready: one that failed to get there would be waited for in vain."""
        setup, followers = self.setup, self._followers
        check_mean_of_parts(setup)
        followers.wait_until_ready()
        self.tell("join")
        join(setup.train_batches.rank, followers.store, setup.device)
        return in_parallel(setup.model, setup.device)

    def restore(self, state: State) -> None:
        """Gives all a state to go on from."""
        path = self._followers.folder / "state.pt"
        torch.save(state, path)
        self.tell("restore", path=str(path))

    def reason_of(self, error: Exception) -> Exception:
        """The end of another process, where an error of this one comes from that; else the error. What the
        model itself raises may have ended the others too."""
        is_of_gloo = type(error) is RuntimeError and "gloo" in str(error)
        is_of_exchange = is_of_gloo or isinstance(error, distributed.DistError)
        return self._followers.lost() if is_of_exchange else error

    def close(self) -> None:
        """Ends the other processes."""
        self._followers.close()
        leave()


_crew: Crew | None = None
"""This process can be in one process group."""


def crew_of(setup: Setup) -> Crew:
    """The crew of a set-up, started when first asked for; another set-up's is dismissed."""
    global _crew
    if _crew is None or _crew.setup is not setup:
        dismiss_crew()
        _crew = Crew(setup)
    return _crew


def dismiss_crew() -> None:
    """Ends the other processes, if there are any."""
    global _crew
    if _crew is not None:
        _crew.close()
        _crew = None


# Data parallel: eager updates of one trial by several processes, each on its share of the batch.


class ParallelEngine(EagerEngine):
    """Instruments see the first process and its share of each batch. Inference is not shared."""

    def open(self, group: Sequence[Member]) -> "LeadingSession":
        (member,) = group
        crew = crew_of(member.setup)
        _tell_of(member.setup)
        return LeadingSession(member, crew)

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        crew = crew_of(setup)
        _tell_of(setup)
        step = _step(setup, moments, crew.model, lambda: setup.train_batches.size_of(0))

        def counted(rows: Tensor) -> Outcome:
            crew.num_steps += 1
            return step(rows)

        return counted


class SharingSession(EagerSession):
    """One process's part in the updates of a trial. What an update draws derives from the trial's seed, the
    process and the number of the update, so that it can go on after any of them."""

    def __init__(self, member: Member, model: CallModel) -> None:
        setup = member.setup
        meter = SharedMeter(setup.workload.sample_metrics, setup.device, stops_explosions=True)
        super().__init__(member, step=self._shared_step(member, model), meter=meter)
        self._epoch = self._number = 0
        """The update that comes next, of the current epoch."""

    @contextmanager
    def training(self, epoch: int, resumed: State | None = None) -> Iterator[None]:
        setup = self._setup
        self.begin_epoch(epoch, 0 if resumed is None else resumed["done"])
        with seeded(setup.trial.seed_of("dropout"), "dropout", epoch, setup.device):
            yield

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        """Stands ready for the updates of an epoch after so many of them."""
        self._begin_epoch(epoch, num_done)
        self._epoch, self._number = epoch, num_done

    def _shared_step(self, member: Member, model: CallModel) -> Step:
        batches, seed = member.setup.train_batches, member.setup.trial.seed_of("dropout")
        purpose = f"dropout/{batches.rank.number}"
        step = _step(member.setup, member.moments, model, lambda: batches.size_of(self._number))

        def shared(rows: Tensor) -> Outcome:
            _seed(derived_seed(seed, purpose, self._epoch * len(batches) + self._number))
            outcome = step(rows)
            counts = batches.rank.num_in(batches.size_of(self._number)) > 0
            self._number += 1
            return outcome if counts else _uncounted(outcome)

        return shared


class LeadingSession(SharingSession):
    """The first process's: what it does, the crew does too."""

    def __init__(self, member: Member, crew: Crew) -> None:
        super().__init__(member, crew.model)
        self._crew = crew

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        self._crew.tell("begin_epoch", epoch=epoch, num_done=num_done)
        super().begin_epoch(epoch, num_done)

    def advance(self, num_steps: int) -> Sequence[Means]:
        self._crew.tell("advance", num_steps=num_steps)
        try:
            return super().advance(num_steps)
        except Exception as error:
            if (reason := self._crew.reason_of(error)) is error:
                raise
            # Not from that error, which is none of the user's code: it names what another process lost.
            raise reason from None

    def change_learning_rates(self) -> None:
        self._crew.tell("change_learning_rates")
        super().change_learning_rates()

    def restore(self, state: State) -> None:
        self._crew.restore(state)
        super().restore(state)


@contextmanager
def stepping_together(setup: Setup) -> Iterator[None]:
    """Single steps inside this block are made by all processes of the trial. The others run freely: each of
    their steps waits for this process's gradients. They may have begun the next by the end of the block, so
    one more is made."""
    if setup.settings.processes == 1:
        yield
        return
    crew = crew_of(setup)
    crew.num_steps = 0
    crew.tell("run")
    try:
        yield
    except BaseException as error:
        reason = crew.reason_of(error) if isinstance(error, Exception) else error
        dismiss_crew()
        raise reason from error
    crew.tell("stop", num_steps=crew.num_steps + 1)
    ParallelEngine().training_step(setup, Moments([]))(setup.split_batches.first_rows())


def free_step(setup: Setup, model: CallModel) -> Callable[[], object]:
    """A step of another process than the first, always on the same samples."""
    batches = setup.split_batches
    step = _step(setup, Moments([]), model, lambda: batches.size_of(0))
    return partial(step, batches.first_rows())


def _uncounted(outcome: Outcome) -> Outcome:
    """Of a process without samples in this batch, which takes part for its gradients' sake alone."""
    none = outcome.outputs[:0], outcome.targets[:0]
    return outcome._replace(outputs=none[0], targets=none[1], num_samples=0)


def _step(setup: Setup, moments: Moments, model: CallModel, batch_size: Callable[[], int]) -> Step:
    """The update of a share; `batch_size` gives the size of the whole batch."""
    rank = setup.train_batches.rank

    def weighted(loss: Tensor) -> Tensor:
        weight = rank.weight_in(batch_size())
        return loss if weight == 1 else loss * weight

    return make_training_step(setup, moments, model, weighted)


def _tell_of(setup: Setup) -> None:
    """Records how the processes work together, and what differs from one alone."""
    setup.engine_facts["backend"] = backend_for(setup.device)
    norms = [
        m for m in setup.model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    told = note("parallel_batch_norm", processes=setup.settings.processes)
    if norms and told not in setup.notes:
        setup.notes.append(told)


def _seed(value: int) -> None:
    torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value % 2**32)


# A process of a crew: takes part in the updates of a trial as its first process says.


def _obey() -> None:
    """Sets the trial up, answers with a line, and then obeys lines of JSON: see `_Follower`."""
    task = Task.model_validate_json(sys.argv[1])
    sys.path += [place for place in task.path if place not in sys.path]
    commands, answers = own_streams()
    setup = _set_up(task)
    answers.write("ready\n")
    answers.flush()
    follower = _Follower(task, setup, _Lines(commands.fileno()))
    for command, values in follower.commands:
        getattr(follower, command)(**values)


class _Lines:
    """Commands as they come; unlike a buffered stream's, what has not been taken shows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._received = descriptor, b""

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        while self._has_line() or self._read():
            if self._has_line():
                line, _, self._received = self._received.partition(b"\n")
                command, values = json.loads(line)
                yield command, values

    def have_come(self) -> bool:
        """Whether there is another, or none will come."""
        return self._has_line() or bool(select.select([self._descriptor], [], [], 0)[0])

    def _has_line(self) -> bool:
        return b"\n" in self._received

    def _read(self) -> bool:
        received = os.read(self._descriptor, 1 << 16)
        self._received += received
        return bool(received)


class _Follower:
    """Its methods are the commands."""

    def __init__(self, task: Task, setup: Setup, commands: _Lines) -> None:
        self._task, self._setup, self.commands = task, setup, commands

    def join(self) -> None:
        task, setup = self._task, self._setup
        join(task.rank, Path(task.store), setup.device)
        self._model = in_parallel(setup.model, setup.device)
        self._session = SharingSession(Member(setup, Moments([]), Progress()), self._model)

    def restore(self, *, path: str) -> None:
        self._session.restore(torch.load(path, map_location="cpu", weights_only=True))

    def begin_epoch(self, *, epoch: int, num_done: int) -> None:
        self._session.begin_epoch(epoch, num_done)

    def advance(self, *, num_steps: int) -> None:
        self._session.advance(num_steps)

    def change_learning_rates(self) -> None:
        self._session.change_learning_rates()

    def run(self) -> None:
        self._setup.model.train()
        step = free_step(self._setup, self._model)
        num_steps, last = 0, math.inf
        while num_steps < last:
            step()
            num_steps += 1
            if last == math.inf and self.commands.have_come():
                _, values = next(iter(self.commands), ("stop", {"num_steps": 0}))
                last = values["num_steps"]


def _set_up(task: Task) -> Setup:
    load, trial = Loader(), task.trial
    prepare_process(trial.settings)
    workload = load.workload(trial.workload)
    data = load.data(trial.workload, trial.settings)
    return set_up(trial, workload, data, rank_number=task.rank.number)


def follow() -> NoReturn:
    """The whole of a follower's process. It ends when no more lines can come, and with its parent."""
    end_with_parent()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # Meant for the trial; its first process hears them too.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    code = 0
    try:
        _obey()
    except BaseException:  # noqa: BLE001  as an interpreter would: shown, and its code is 1
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the first process may be gone, and with it the process group
