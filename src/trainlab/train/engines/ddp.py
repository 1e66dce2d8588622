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
from pathlib import Path
from shutil import rmtree
from typing import Any, NoReturn, cast

import numpy as np
import psutil
import torch
from torch import Tensor, distributed
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
from trainlab.train.step import CallModel, StepOutcome

FOLLOW = "from trainlab.train.engines.ddp import follow; follow()"
"""What a process of a trial other than the first runs."""
PREFIX = "trainlab-ddp-"
"""Of temporary folders."""
PATIENCE_S = 2.0
"""How long a process that has lost its connection may take to end."""
NUM_SAMPLES = 48
"""That the loss is tried on before several processes train."""


class ProcessLostError(TrainlabError):
    """A process of the trial has ended before it."""


class RankTask(Spec):
    """What a follower is told when it starts."""

    trial: Trial
    rank: Rank
    store: str
    """The file in which the processes meet."""
    path: tuple[str, ...]
    """Where the first process finds modules, looked at last."""


class ParallelEngine(EagerEngine):
    """Instruments see the first process and its share of each batch. Inference is not shared."""

    def open(self, group: Sequence[Member]) -> "LeadingSession":
        (member,) = group
        return LeadingSession(member, _ranks_of(member.setup))

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        ranks = _ranks_of(setup)
        step = _step(setup, moments, ranks.model, lambda: setup.train_batches.size_of(0))

        def counted(rows: Tensor) -> StepOutcome:
            ranks.num_steps += 1
            return step(rows)

        return counted


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

        def shared(rows: Tensor) -> StepOutcome:
            value = derived_seed(seed, purpose, self._epoch * len(batches) + self._number)
            torch.manual_seed(value)
            random.seed(value)
            np.random.seed(value % 2**32)
            outcome = step(rows)
            counts = batches.rank.num_in(batches.size_of(self._number)) > 0
            self._number += 1
            if counts:
                return outcome
            # Without samples in this batch it takes part for its gradients' sake alone.
            none = outcome.outputs[:0], outcome.targets[:0]
            return outcome._replace(outputs=none[0], targets=none[1], num_samples=0)

        return shared


class LeadingSession(SharingSession):
    """The first process's: what it does, the others do too."""

    def __init__(self, member: Member, ranks: "Ranks") -> None:
        super().__init__(member, ranks.model)
        self._ranks = ranks

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        self._ranks.tell("begin_epoch", epoch=epoch, num_done=num_done)
        super().begin_epoch(epoch, num_done)

    def advance(self, num_steps: int) -> Sequence[Means]:
        self._ranks.tell("advance", num_steps=num_steps)
        try:
            return super().advance(num_steps)
        except Exception as error:
            if (reason := self._ranks.reason_of(error)) is error:
                raise
            # Not from that error, which is none of the user's code: it names what another process lost.
            raise reason from None

    def change_learning_rates(self) -> None:
        self._ranks.tell("change_learning_rates")
        super().change_learning_rates()

    def restore(self, state: State) -> None:
        path = Path(self._ranks.folder.name) / "state.pt"
        torch.save(state, path)
        self._ranks.tell("restore", path=str(path))
        super().restore(state)


class Ranks:
    """All processes of one trial, as the first of them starts, tells and ends the others. They import and
    set the trial up while the first process does."""

    model: DistributedDataParallel
    """Once they have joined."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.setup = trial, cast("Setup | None", None)
        self.num_steps = 0
        """Steps that were made one by one since the others run freely."""
        _remove_left_behind()
        self.folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        self._store = str(Path(self.folder.name) / "store")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._are_ready = False
        try:
            for number in range(1, trial.settings.processes):
                self._processes.append(self._started(number))
        except BaseException:
            self.close()
            raise

    def _started(self, number: int) -> "subprocess.Popen[bytes]":
        environment, settings = dict(os.environ), self.trial.settings
        if settings.threads is not None:
            environment["OMP_NUM_THREADS"] = str(settings.threads)
        rank = Rank(number=number, of=settings.processes)
        task = RankTask(trial=self.trial, rank=rank, store=self._store, path=tuple(sys.path))
        return subprocess.Popen(
            [sys.executable, "-P", "-c", FOLLOW, task.model_dump_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )

    def wait_until_ready(self) -> None:
        """Until all have set the trial up; ProcessLostError where one has ended."""
        for process in () if self._are_ready else self._processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise self._lost()
        self._are_ready = True

    def join(self, setup: Setup) -> None:
        """Once all stand ready: one that failed to get there would be waited for in vain."""
        self.setup = setup
        try:
            check_mean_of_parts(setup)
            self.wait_until_ready()
            self.tell("join")
            self.model = _joined(setup, setup.train_batches.rank, self._store)
        except BaseException:
            self.close()
            raise

    def tell(self, command: str, **values: Any) -> None:
        """The same to all; see `_Follower`."""
        line = json.dumps([command, values]).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # its connection is lost as well, which is noticed
                process.stdin.write(line)

    def reason_of(self, error: Exception) -> Exception:
        """The end of another process, where an error of this one comes from that; else the error. What the
        model itself raises may have ended the others too."""
        is_of_gloo = type(error) is RuntimeError and "gloo" in str(error)
        return self._lost() if is_of_gloo or isinstance(error, distributed.DistError) else error

    def _lost(self) -> ProcessLostError:
        """Which of them has ended, and how."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            codes = ((number, one.poll()) for number, one in enumerate(self._processes, start=2))
            for number, code in codes:
                if code is not None:
                    how = f"ended with code {code}"
                    how = f"was ended by {signal_name(-code)}" if code < 0 else how
                    of = len(self._processes) + 1
                    told = f"processes: number {number} of {of} {how}; its error is in the log"
                    return ProcessLostError(told)
            if time.monotonic() >= deadline_s:
                return ProcessLostError("processes: the connection between them broke")
            time.sleep(0.01)

    def close(self) -> None:
        """Ends the others."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
        self.folder.cleanup()
        if distributed.is_initialized():
            distributed.destroy_process_group()


_ranks: Ranks | None = None
"""This process can be in one process group."""


def start_ahead(trial: Trial) -> None:
    """Starts the followers of a trial that this process will run, and waits until they stand ready: nothing
    of their start is left to disturb what is measured."""
    global _ranks
    _ranks = Ranks(trial)
    with suppress(ProcessLostError):  # told when they are needed
        _ranks.wait_until_ready()


def dismiss_crew() -> None:
    """Ends the other processes, if there are any."""
    global _ranks
    if _ranks is not None:
        _ranks.close()
        _ranks = None


def _ranks_of(setup: Setup) -> Ranks:
    """Those of a set-up, started when first asked for, or ahead; another set-up's are dismissed."""
    global _ranks
    if _ranks is not None and (
        _ranks.trial != setup.trial or not (_ranks.setup is None or _ranks.setup is setup)
    ):
        dismiss_crew()
    if _ranks is None:
        _ranks = Ranks(setup.trial)
    if _ranks.setup is None:
        _ranks.join(setup)
    _record(setup)
    return _ranks


def _record(setup: Setup) -> None:
    """How the processes work together, and what differs from one alone."""
    setup.engine_facts["backend"] = _backend_for(setup.device)
    told = note("parallel_batch_norm", processes=setup.settings.processes)
    norms = torch.nn.modules.batchnorm._BatchNorm
    has_norms = any(isinstance(one, norms) for one in setup.model.modules())
    if has_norms and told not in setup.notes:
        setup.notes.append(told)


def _remove_left_behind() -> None:
    """The folders of processes that were killed and could not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = owner.isdecimal() and folder.lstat().st_uid == os.getuid()
            if is_ours and not psutil.pid_exists(int(owner)):
                rmtree(folder)


def _backend_for(device: torch.device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"


def _joined(setup: Setup, rank: Rank, store: str) -> DistributedDataParallel:
    """The model, its gradients averaged over all processes as they are computed; all begin with the weights
    of the first. Waits until all have come: they meet in a file and exchange over loopback."""
    loopback, device = "lo0" if sys.platform == "darwin" else "lo", setup.device
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, loopback)
    file = FileStore(store, rank.of)
    distributed.init_process_group(
        _backend_for(device), store=file, rank=rank.number, world_size=rank.of
    )
    warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
    # Which parameters an update reaches may differ between processes: none may wait for a gradient in vain.
    indices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(setup.model, indices, find_unused_parameters=True)


def check_mean_of_parts(setup: Setup) -> None:
    """WorkloadError where the loss of a batch is not the mean over its samples: the mean of what several
    processes find in their shares would be another loss. A model that cannot be copied is not looked at."""
    try:
        model = copy.deepcopy(setup.model).eval()
    except Exception:  # noqa: BLE001  the model's own
        return
    batches = setup.split_batches
    # From all over the training set, which may be sorted.
    rows = torch.linspace(0, batches.num_samples - 1, min(NUM_SAMPLES, batches.num_samples))
    inputs, targets = batches.samples(rows.long())

    def mean_of_parts(size: int) -> float:
        """NaN where the model takes no batch of that size."""
        total = 0.0
        for part, told in zip(inputs.split(size), targets.split(size), strict=True):
            try:
                # A copy: the inputs may be changed in place.
                outputs = model(setup.workload.prepare(part.clone()))
                total += len(told) * float(setup.loss(outputs, told))
            except Exception:  # noqa: BLE001  the model's own
                return math.nan
        return total / len(targets)

    devices = [setup.device] if setup.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices), setup.autocast():
        # Weights moved a little: where an output layer starts at zero, all samples have the same loss.
        draw = torch.Generator().manual_seed(0)
        for one in filter(Tensor.is_floating_point, model.parameters()):
            noise = torch.randn(one.shape, generator=draw, dtype=torch.float32)
            one.add_(0.05 * noise.to(one.device, one.dtype))
        whole, *means = map(mean_of_parts, (len(targets), 1, 2, 5))
    for mean in filter(math.isfinite, means):
        if math.isfinite(whole) and not math.isclose(whole, mean, rel_tol=1e-3, abs_tol=1e-6):
            raise WorkloadError(
                f"loss: gave {whole:.6g} for a batch and {mean:.6g} as the mean of its parts (it, or the "
                "model, mixes samples), so several processes would train something else; use processes=1"
            )


@contextmanager
def stepping_together(setup: Setup) -> Iterator[None]:
    """Single steps inside this block are made by all processes of the trial. The others run freely: each of
    their steps waits for this process's gradients. They may have begun the next by the end of the block, so
    one more is made."""
    if setup.settings.processes == 1:
        yield
        return
    ranks = _ranks_of(setup)
    ranks.num_steps = 0
    ranks.tell("run")
    try:
        yield
    except BaseException as error:
        reason = ranks.reason_of(error) if isinstance(error, Exception) else error
        dismiss_crew()
        raise reason from error
    ranks.tell("stop", num_steps=ranks.num_steps + 1)
    ParallelEngine().training_step(setup, Moments([]))(setup.split_batches.first_rows())


def _step(setup: Setup, moments: Moments, model: CallModel, batch_size: Callable[[], int]) -> Step:
    """The update of a share; `batch_size` gives the size of the whole batch."""
    rank = setup.train_batches.rank

    def weighted(loss: Tensor) -> Tensor:
        weight = rank.weight_in(batch_size())
        return loss if weight == 1 else loss * weight

    return make_training_step(setup, moments, model, weighted)


class _Follower:
    """A process of the trial other than the first. Its methods are the commands, lines of JSON."""

    def __init__(self, task: RankTask, setup: Setup, descriptor: int) -> None:
        self._task, self._setup = task, setup
        self._descriptor, self._received = descriptor, b""

    def commands(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """As they come; unlike a buffered stream's, what has not been taken shows."""
        while b"\n" in self._received or (more := os.read(self._descriptor, 1 << 16)):
            if b"\n" not in self._received:
                self._received += more
                continue
            line, _, self._received = self._received.partition(b"\n")
            command, values = json.loads(line)
            yield command, values

    def join(self) -> None:
        self._model = _joined(self._setup, self._task.rank, self._task.store)
        self._session = SharingSession(Member(self._setup, Moments([]), Progress()), self._model)
        self.begin_epoch, self.advance = self._session.begin_epoch, self._session.advance
        self.change_learning_rates = self._session.change_learning_rates

    def restore(self, *, path: str) -> None:
        self._session.restore(torch.load(path, map_location="cpu", weights_only=True))

    def run(self) -> None:
        """Makes steps, always on the same samples, until `stop` comes, then up to the number it says."""
        batches = self._setup.split_batches
        self._setup.model.train()
        step = _step(self._setup, Moments([]), self._model, lambda: batches.size_of(0))
        num_steps, last = 0, math.inf
        while num_steps < last:
            step(batches.first_rows())
            num_steps += 1
            has_come = self._received or select.select([self._descriptor], [], [], 0)[0]
            if last == math.inf and has_come:
                last = next(self.commands(), ("stop", {"num_steps": 0}))[1]["num_steps"]


def follow() -> NoReturn:
    """The whole of a follower's process: sets the trial up, answers with a line, and obeys. It ends when no
    more lines can come, and with its parent."""
    end_with_parent()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # Meant for the trial; its first process hears them too.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    code = 0
    try:
        task = RankTask.model_validate_json(sys.argv[1])
        sys.path += [place for place in task.path if place not in sys.path]
        commands, answers = own_streams()
        load, trial = Loader(), task.trial
        prepare_process(trial.settings)
        data = load.workload(trial.workload), load.data(trial.workload, trial.settings)
        setup = set_up(trial, *data, rank_number=task.rank.number)
        answers.write("ready\n")
        answers.flush()
        follower = _Follower(task, setup, commands.fileno())
        for command, values in follower.commands():
            getattr(follower, command)(**values)
    except BaseException:  # noqa: BLE001  as an interpreter would: shown, and its code is 1
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the first process may be gone, and with it the process group
