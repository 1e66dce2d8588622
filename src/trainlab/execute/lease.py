"""The lease: a run folder has one driver at a time.

Each driver has a file `drivers/NUMBER.json`, which only one can create; the highest number holds the lease
until its driver says that it has ended, or has died. A driver on this machine is looked for by its process;
one on another must renew its file while we watch. No clock of another machine is trusted.
"""

import getpass
import os
import signal
import socket
import threading
import time
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
        return f"{self.user} on {self.host}, process {self.pid}"

    @property
    def is_dead(self) -> bool | None:
        """None where that cannot be told from here."""
        if not self.has_ended and self.machine != machine_identity():
            return None
        return self.has_ended or self.process is None or start_mark(self.pid) != self.process


@contextmanager
def leased(
    run: RunFolder, waiting: Callable[[Driver], None] = lambda driver: None
) -> Iterator[None]:
    """This process drives the run inside this block; RecordError where another one does. `waiting` is
    called where one on another machine is to be watched first."""
    number, holder = _newest(run)
    if holder is not None and not _has_died(run, holder, waiting):
        raise _refusal(run, holder)
    number, driver = number + 1, _this_process()
    path = _file_of(run, number)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as stream:
                stream.write(driver.model_dump_json() + "\n")
        except FileExistsError:
            raise _refusal(run, holder_of(run)) from None
    is_over = threading.Event()
    thread = threading.Thread(target=_keep, args=(run, number, driver, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        with suppress(RecordError):
            _write(run, number, driver.model_copy(update={"has_ended": True}))
        _cancel_file(run, number).unlink(missing_ok=True)


def holder_of(run: RunFolder) -> Driver | None:
    """The last driver that the run had, alive or not; None where there was none."""
    return _newest(run)[1]


def ask_to_stop(run: RunFolder) -> None:
    """Leaves a message for the driver, which it finds wherever it runs."""
    path = _cancel_file(run, _newest(run)[0])
    with writing(path):
        path.touch()


def _keep(run: RunFolder, number: int, driver: Driver, is_over: threading.Event) -> None:
    """Renews the lease, and looks whether somebody asks its driver to stop, or another one has taken the
    run, believing this one dead."""
    renewed_s = time.monotonic()
    while not is_over.wait(POLL_S):
        must_stop = _cancel_file(run, number).exists() or _file_of(run, number + 1).exists()
        # Not before the driver handles it: until then there is nothing to stop.
        if must_stop and callable(signal.getsignal(signal.SIGTERM)):
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGTERM)  # also wakes it from a wait
            return
        if time.monotonic() - renewed_s >= RENEW_S:
            renewed_s = time.monotonic()
            driver = driver.model_copy(update={"renewals": driver.renewals + 1})
            with suppress(RecordError):  # a full disk is no reason to stop
                _write(run, number, driver)


def _this_process() -> Driver:
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
        token=os.urandom(6).hex(),
        begun=datetime.now(UTC).isoformat(timespec="seconds"),
    )


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


def _newest(run: RunFolder) -> tuple[int, Driver | None]:
    """The number of the last driver, 0 before the first, and who it is; None for one that died while it
    wrote that down."""
    paths = run.drivers_folder.glob("*.json")
    number = max((int(path.stem) for path in paths if path.stem.isdecimal()), default=0)
    with suppress(RecordError):
        return number, read_record(_file_of(run, number), Driver)
    return number, None


def _write(run: RunFolder, number: int, driver: Driver) -> None:
    # Not synced: a power cut ends its process, too.
    write_json(_file_of(run, number), driver.model_dump(mode="json"), synced=False)


def _file_of(run: RunFolder, number: int) -> Path:
    return run.drivers_folder / f"{number}.json"


def _cancel_file(run: RunFolder, number: int) -> Path:
    return run.drivers_folder / f"{number}.cancel"
