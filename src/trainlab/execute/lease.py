"""The lease: a run folder has one driver at a time.

Each driver has a file `drivers/NUMBER.json`, which only one can create; the highest number holds the lease
until its driver says that it has ended, or has died. A driver on this machine is looked for by its process;
one on another must renew its file while we watch. No clock of another machine is trusted.
"""

import _thread
import getpass
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from trainlab.errors import RecordError
from trainlab.machine.processes import machine_identity, start_mark
from trainlab.record.files import write_json, writing
from trainlab.record.run_folder import RunFolder, read_record
from trainlab.record.schema import FileRecord

POLL_S = 0.5
"""Between two looks whether the driver is asked to stop."""
RENEW_S = 5.0
WATCH_S = 20.0
"""A driver on another machine that does not renew its lease for so long is taken to be dead."""


class Driver(FileRecord):
    """drivers/NUMBER.json: a process that drives a run, or did."""

    user: str
    host: str
    pid: int
    machine: str
    """Where the process id means something; see `machine_identity`."""
    process: str | None
    """When the process was started; see `start_mark`."""
    token: str
    begun: str
    renewals: int = 0
    has_ended: bool = False

    @property
    def name(self) -> str:
        """Who it is, for a person."""
        return f"{self.user} on {self.host}, process {self.pid}"

    @property
    def is_here(self) -> bool:
        """Whether it can be looked for by its process."""
        return self.machine == machine_identity()

    @property
    def is_dead(self) -> bool | None:
        """None where that cannot be told from here."""
        if self.has_ended:
            return True
        if not self.is_here:
            return None
        return self.process is None or start_mark(self.pid) != self.process


class Lease:
    """A driver's hold on a run. Renewed by a thread, which also looks whether somebody asks it to stop."""

    def __init__(self, run: RunFolder, number: int, driver: Driver) -> None:
        self._run, self._number, self._driver = run, number, driver
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def release(self) -> None:
        """The driver has ended."""
        self._is_over.set()
        self._thread.join()
        with suppress(RecordError):
            self._write(has_ended=True)
        _cancel_file(self._run, self._number).unlink(missing_ok=True)

    def _keep(self) -> None:
        renewed_s = time.monotonic()
        while not self._is_over.wait(POLL_S):
            # Not before the driver handles it: until then there is nothing to stop.
            if self._must_stop() and callable(signal.getsignal(signal.SIGTERM)):
                _interrupt()
                return
            if time.monotonic() - renewed_s >= RENEW_S:
                renewed_s = time.monotonic()
                with suppress(RecordError):  # a full disk is no reason to stop
                    self._write(renewals=self._driver.renewals + 1)

    def _must_stop(self) -> bool:
        """Whether it was asked to, or another driver has taken the run, believing this one dead."""
        is_lost = _file_of(self._run, self._number + 1).exists()
        return is_lost or _cancel_file(self._run, self._number).exists()

    def _write(self, **changes: object) -> None:
        self._driver = self._driver.model_copy(update=changes)
        # Not synced: a power cut ends its process, too.
        content = self._driver.model_dump(mode="json")
        write_json(_file_of(self._run, self._number), content, synced=False)


@contextmanager
def leased(
    run: RunFolder, waiting: Callable[[Driver], None] = lambda driver: None
) -> Iterator[None]:
    """This process drives the run inside this block; RecordError where another one does. `waiting` is
    called where one on another machine is to be watched first."""
    lease = _taken(run, waiting)
    try:
        yield
    finally:
        lease.release()


def holder_of(run: RunFolder) -> Driver | None:
    """The last driver that the run had, alive or not; None where there was none."""
    found = _newest(run)
    return None if found is None else found[1]


def ask_to_stop(run: RunFolder) -> None:
    """Leaves a message for the driver, which it finds wherever it runs."""
    found = _newest(run)
    if found is not None:
        path = _cancel_file(run, found[0])
        with writing(path):
            path.touch()


def _taken(run: RunFolder, waiting: Callable[[Driver], None]) -> Lease:
    found = _newest(run)
    number = 1
    if found is not None:
        number, holder = found[0] + 1, found[1]
        if holder is not None and not _has_died(run, holder, waiting):
            raise _refusal(run, holder)
    driver = _this_driver()
    path = _file_of(run, number)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as stream:
                stream.write(driver.model_dump_json() + "\n")
        except FileExistsError:
            raise _refusal(run, holder_of(run)) from None
    return Lease(run, number, driver)


def _interrupt() -> None:
    """As a polite kill of this process would."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGTERM)  # also wakes it from a wait
    else:
        _thread.interrupt_main(signal.SIGTERM)


def _refusal(run: RunFolder, holder: Driver | None) -> RecordError:
    name = "another process" if holder is None else holder.name
    watch, stop = (f"`trainlab {verb} {run.path}`" for verb in ("status", "cancel"))
    remedy = f"wait for it, watch it with {watch} or stop it with {stop}"
    return RecordError(f"{run.path}: is being run by {name}; {remedy}")


def _has_died(run: RunFolder, holder: Driver, waiting: Callable[[Driver], None]) -> bool:
    if holder.is_dead is not None:
        return holder.is_dead
    waiting(holder)
    deadline_s = time.monotonic() + WATCH_S
    while time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        now = holder_of(run)
        if now is not None and now != holder:
            return now.has_ended and now.token == holder.token
    return True


def _this_driver() -> Driver:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "somebody"
    return Driver(
        user=user,
        host=socket.gethostname(),
        pid=os.getpid(),
        machine=machine_identity(),
        process=start_mark(os.getpid()),
        token=uuid.uuid4().hex[:12],
        begun=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _newest(run: RunFolder) -> tuple[int, Driver | None] | None:
    """The number of the last driver, and who it is; None for one that died while it wrote that down."""
    numbers = [
        int(path.stem) for path in run.drivers_folder.glob("*.json") if path.stem.isdecimal()
    ]
    if not numbers:
        return None
    number, deadline_s = max(numbers), time.monotonic() + 1.0
    while True:
        try:
            return number, read_record(_file_of(run, number), Driver)
        except RecordError:
            if time.monotonic() > deadline_s:
                return number, None
            time.sleep(0.05)


def _file_of(run: RunFolder, number: int) -> Path:
    return run.drivers_folder / f"{number}.json"


def _cancel_file(run: RunFolder, number: int) -> Path:
    return run.drivers_folder / f"{number}.cancel"
