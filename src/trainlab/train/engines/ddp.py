"""One trial in several processes, data parallel: each takes its share of every batch, and all make the same
update with the mean of their gradients.

The first process is the worker itself. It runs the loop, tests, and writes all records; the others, its
followers, take part in the updates and nothing else.
"""

import copy
import io
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from trainlab.errors import TrainlabError, WorkloadError
from trainlab.machine.process_state import prepare_process
from trainlab.machine.processes import end_with_parent, signal_name
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Moments
from trainlab.train.engines.eager import EagerEngine, EagerSession, Step, make_training_step
from trainlab.train.engines.engine import Member, State, Update
from trainlab.train.loader import Loader
from trainlab.train.metering import Means, Meter
from trainlab.train.seeds import derived_seed
from trainlab.train.setup import Setup, set_up
from trainlab.train.step import CallModel, StepOutcome

FOLLOW = "from trainlab.train.engines.ddp import follow; follow()"
"""What a process of a trial other than the first runs."""
PATIENCE_S = 2.0
"""How long a process that has lost its connection may take to end."""
NUM_SAMPLES, PART = 48, 5
"""That the loss is tried on before several processes train, at once and in parts."""


class ProcessLostError(TrainlabError):
    """A process of the trial has ended before it."""


class ParallelEngine(EagerEngine):
    """Instruments see the first process and its share of each batch. Inference is not shared."""

    def open(self, group: Sequence[Member]) -> "ParallelSession":
        (member,) = group
        ranks = _ranks_of(member.setup)
        return ParallelSession(member, ranks.model, ranks)

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
        counts = torch.cat(self._counts)
        sums, weighted = torch.stack(list(self._sums.values())), torch.cat(self._losses) * counts
        every = torch.cat([sums, weighted, counts])
        distributed.all_reduce(every)
        sums, weighted, counts = every.split([len(sums), len(counts), len(counts)])
        self._sums = dict(zip(self._sums, sums, strict=True))
        self._samples = dict.fromkeys(self._sums, int(counts.sum()))
        self._losses, self._counts = [weighted / counts], [counts]
        return super().means()


class ParallelSession(EagerSession):
    """One process's part in the updates of a trial; what the first does, the others do too. What an update
    draws derives from the trial's seed, the process and the number of the update, so that it can go on
    after any of them."""

    def __init__(self, member: Member, model: CallModel, others: "Ranks | None" = None) -> None:
        """`others`: of the first process."""
        setup = member.setup
        meter = SharedMeter(setup.workload.sample_metrics, setup.device, stops_explosions=True)
        self._others, self._batches_of_all = others, setup.train_batches
        self._epoch = self._number = 0
        """The update that comes next, of the current epoch."""
        self._own_step = _step(setup, member.moments, model, self._batch_size)
        super().__init__(member, step=self._shared_step, meter=meter)

    def _batch_size(self) -> int:
        """Samples of the whole batch of the update that comes next."""
        return self._batches_of_all.size_of(self._number)

    def _shared_step(self, rows: Tensor) -> StepOutcome:
        rank, update = self._batches_of_all.rank, self._epoch * len(self._batches_of_all)
        seed = self._setup.trial.seed_of("dropout")
        value = derived_seed(seed, f"dropout/{rank.number}", update + self._number)
        torch.manual_seed(value)
        random.seed(value)
        np.random.seed(value % 2**32)
        outcome, num_samples = self._own_step(rows), rank.num_in(self._batch_size())
        self._number += 1
        if num_samples:
            return outcome
        # Without samples in this batch it takes part for its gradients' sake alone.
        outputs, targets = outcome.outputs[:0], outcome.targets[:0]
        return outcome._replace(outputs=outputs, targets=targets, num_samples=0)

    def _tell(self, command: str, **values: Any) -> None:
        if self._others is not None:
            self._others.tell(command, **values)

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        self._tell("begin_epoch", epoch=epoch, num_done=num_done)
        super().begin_epoch(epoch, num_done)
        self._epoch, self._number = epoch, num_done

    def advance(self, num_steps: int) -> Sequence[Means]:
        self._tell("advance", num_steps=num_steps)
        try:
            return super().advance(num_steps)
        except Exception as error:
            reason = error if self._others is None else self._others.reason_of(error)
            if reason is error:
                raise
            # Not from that error, which is none of the user's code: it names what another process lost.
            raise reason from None

    def change_learning_rates(self) -> None:
        self._tell("change_learning_rates")
        super().change_learning_rates()

    def restore(self, state: State) -> None:
        stream = io.BytesIO()
        torch.save(state, stream)
        self._tell("restore", state=stream.getvalue())
        super().restore(state)


class Ranks:
    """All processes of one trial, as the first of them starts, tells and ends the others."""

    def __init__(self, setup: Setup) -> None:
        """The others import and set the trial up while this one looks at its loss. One that fails there is
        not waited for: ProcessLostError."""
        self.setup, self.num_steps = setup, 0
        """Steps that were made one by one since the others run freely."""
        self._folder = tempfile.TemporaryDirectory(prefix="trainlab-ddp-")
        store = str(Path(self._folder.name) / "store")  # the file in which the processes meet
        environment, settings = dict(os.environ), setup.settings
        if settings.threads is not None:
            environment["OMP_NUM_THREADS"] = str(settings.threads)
        self._others: list[tuple[subprocess.Popen[bytes], Connection]] = []
        try:
            for number in range(1, settings.processes):
                ours, theirs = Pipe()
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", FOLLOW, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # what the user's code prints in the first process is enough
                    pass_fds=[theirs.fileno()],
                    env=environment,
                )
                theirs.close()
                self._others.append((process, ours))
                ours.send((sys.path, setup.trial, number, store))
            check_mean_of_parts(setup)
            for _, connection in self._others:
                try:
                    connection.recv()
                except (EOFError, OSError):
                    raise self._lost() from None
            self.tell("join")
            self.model = _joined(setup, store)
        except BaseException:
            self.close()
            raise

    def tell(self, command: str, **values: Any) -> None:
        """The same to all; see `follow`."""
        for _, connection in self._others:
            with suppress(OSError):  # its part in the updates is missed as well, which is noticed
                connection.send((command, values))

    def reason_of(self, error: Exception) -> Exception:
        """The end of another process, where an error of this one comes from that; else the error. What the
        model itself raises may have ended the others too."""
        is_of_gloo = type(error) is RuntimeError and "gloo" in str(error)
        return self._lost() if is_of_gloo or isinstance(error, distributed.DistError) else error

    def _lost(self) -> ProcessLostError:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for number, (process, _) in enumerate(self._others, start=2):
                if (code := process.poll()) is not None:
                    by = f"was ended by {signal_name(-code)}"
                    how = by if code < 0 else f"ended with code {code}"
                    which = f"number {number} of {len(self._others) + 1}"
                    return ProcessLostError(f"processes: {which} {how}; its error is in the log")
            time.sleep(0.01)
        return ProcessLostError("processes: the connection between them broke")

    def close(self) -> None:
        for process, connection in self._others:
            process.kill()
            process.wait()
            connection.close()
        self._folder.cleanup()
        if distributed.is_initialized():
            distributed.destroy_process_group()


_ranks: Ranks | None = None
"""This process can be in one process group."""


def dismiss_crew() -> None:
    global _ranks
    if _ranks is not None:
        _ranks.close()
        _ranks = None


def _ranks_of(setup: Setup) -> Ranks:
    """Those of a set-up, started when first asked for; another set-up's are dismissed."""
    global _ranks
    if _ranks is None or _ranks.setup is not setup:
        dismiss_crew()
        _ranks = Ranks(setup)
    # How the processes work together, and what differs from one alone.
    setup.engine_facts["backend"] = distributed.get_backend()
    norms = torch.nn.modules.batchnorm._BatchNorm
    if any(isinstance(one, norms) for one in setup.model.modules()):
        setup.note_once("parallel_batch_norm", processes=setup.settings.processes)
    return _ranks


def _joined(setup: Setup, store: str) -> DistributedDataParallel:
    """The model, its gradients averaged over all processes as they are computed; all begin with the weights
    of the first. Waits until all have come: they meet in a file and exchange over loopback."""
    device, rank = setup.device, setup.train_batches.rank
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo0" if sys.platform == "darwin" else "lo")
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=FileStore(store, rank.of),
        rank=rank.number,
        world_size=rank.of,
    )
    warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
    # Which parameters an update reaches may differ between processes: none may wait for a gradient in vain.
    indices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(setup.model, indices, find_unused_parameters=True)


def check_mean_of_parts(setup: Setup) -> None:
    """WorkloadError where the loss of a batch is not the mean over its samples: the mean of what several
    processes find in their shares would be another loss. A model that cannot be copied or run is not looked
    at: training will tell."""
    batches = setup.split_batches
    # From all over the training set, which may be sorted.
    rows = torch.linspace(0, batches.num_samples - 1, min(NUM_SAMPLES, batches.num_samples))
    inputs, targets = batches.samples(rows.long())
    devices = [setup.device] if setup.device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices), setup.autocast():
            model = copy.deepcopy(setup.model).eval()
            means = []
            for size in (len(targets), PART):
                parts = zip(inputs.split(size), targets.split(size), strict=True)
                # Copies: the inputs may be changed in place.
                losses = [
                    len(told) * float(setup.loss(model(setup.workload.prepare(part.clone())), told))
                    for part, told in parts
                ]
                means.append(sum(losses) / len(targets))
    except Exception:  # noqa: BLE001  the user's code, which may raise anything
        return
    whole, mean = means
    is_same = math.isclose(whole, mean, rel_tol=1e-3, abs_tol=1e-6)
    if math.isfinite(whole) and math.isfinite(mean) and not is_same:
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


def _run_freely(setup: Setup, model: CallModel, leader: Connection) -> None:
    """Makes steps, always on the same samples, until `stop` comes, then up to the number it says."""
    batches = setup.split_batches
    setup.model.train()
    step = _step(setup, Moments([]), model, lambda: batches.size_of(0))
    num_steps, last = 0, math.inf
    while num_steps < last:
        step(batches.first_rows())
        num_steps += 1
        if last == math.inf and leader.poll():
            last = leader.recv()[1]["num_steps"]


def follow() -> NoReturn:
    """The whole of a follower's process: sets the trial up, says so, and obeys. It ends when no more
    commands can come, and with its parent."""
    end_with_parent()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # Meant for the trial; its first process hears them too.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    code = 0
    try:
        leader = Connection(int(sys.argv[1]))
        path, trial, number, store = leader.recv()
        sys.path += [place for place in path if place not in sys.path]
        load = Loader()
        prepare_process(trial.settings)
        data = load.workload(trial.workload), load.data(trial.workload, trial.settings)
        setup = set_up(trial, *data, rank_number=number)
        leader.send("ready")
        with suppress(EOFError):
            leader.recv()  # join
            model = _joined(setup, store)
            session = ParallelSession(Member(setup, Moments([]), Progress()), model)
            while True:
                command, values = leader.recv()
                if command == "run":
                    _run_freely(setup, model, leader)
                elif command == "restore":
                    state = io.BytesIO(values["state"])
                    session.restore(torch.load(state, map_location="cpu", weights_only=True))
                else:
                    getattr(session, command)(**values)
    except BaseException:  # noqa: BLE001  as an interpreter would: shown, and its code is 1
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the first process may be gone, and with it the process group
