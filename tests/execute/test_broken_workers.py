"""Workers whose own code goes wrong in ways that nobody tells the run about."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import pytest

from asking import groups_of, study_of
from children import children
from trainlab.execute.executors import ProcessesExecutor
from trainlab.execute.planned_run import start_run
from trainlab.execute.signals import ENDING, interrupted_once, signals_held
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader

QUICK = CostSpec(processes=1, budget_s=0.1, extra_s=0, warmup_steps=2, active_steps=2, trace_mb=0)

FAULTS = """
import dataclasses, multiprocessing, os, signal, sys, threading, time
_loss, _calls = tiny.loss, []
def broken(outputs, targets):
    _calls.append(1)
    if len(_calls) == 4:
        {fault}
    return _loss(outputs, targets)
if multiprocessing.parent_process() is not None:
    tiny = dataclasses.replace(tiny, loss=broken)
"""


@pytest.fixture
def broken_run(tiny_file: Path, tmp_path: Path) -> Callable[[str], RunFolder]:
    """A run whose workers do the given thing in the fourth step that they train."""

    def start(fault: str) -> RunFolder:
        study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, cost=QUICK, learn=False)
        folder = start_run(study, tmp_path / "r")
        tiny_file.write_text(tiny_file.read_text() + FAULTS.format(fault=fault))
        return folder

    return start


def run_groups(folder: RunFolder, wanted: Callable[[Group], bool] = lambda group: True) -> None:
    groups = [group for group in groups_of(folder) if wanted(group)]
    with closing(ProcessesExecutor(Loader())) as executor:
        executor.run(folder, groups, lambda: False)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """What hangs is a failure, not a test that never ends."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_threads_that_a_worker_leaves_behind_hold_nothing_up(
    broken_run: Callable[[str], RunFolder],
) -> None:
    folder = broken_run("threading.Thread(target=time.sleep, args=(600,)).start()")
    before = set(children())
    start = time.monotonic()
    with at_most(45):
        run_groups(folder)
    assert {trial.state for trial in folder.trials()} == {"done"}
    # It leaves by itself: nobody has to lose patience.
    (watched,) = [group for group in groups_of(folder) if group.bench is None]
    assert len(watched.trials) == 2
    assert time.monotonic() - start < 60
    assert set(children()) == before


def test_what_a_worker_wants_done_at_its_end_is_done(
    broken_run: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    mark = tmp_path / "tidied"
    folder = broken_run(f"__import__('atexit').register(open, {str(mark)!r}, 'w')")
    run_groups(folder, lambda group: group.bench is not None)
    assert mark.exists()


@pytest.mark.slow
def test_a_worker_that_does_not_leave_is_killed_and_its_record_stands(
    broken_run: Callable[[str], RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainlab.execute.launch.DONE_S", 1.0)
    folder = broken_run("__import__('atexit').register(time.sleep, 600)")
    with at_most(45):
        run_groups(folder)
    assert {trial.state for trial in folder.trials()} == {"done"}


@pytest.mark.parametrize(
    "child",
    [
        pytest.param("os.fork() or time.sleep(60)", id="forked by Python"),
        # Nothing of Python's runs in such a child: it keeps the worker's pipe open.
        pytest.param("__import__('ctypes').CDLL(None).fork() or time.sleep(60)", id="forked by C"),
    ],
)
@pytest.mark.slow
def test_a_worker_that_dies_before_a_child_of_its_own_is_recorded_as_dead(
    child: str, broken_run: Callable[[str], RunFolder]
) -> None:
    folder = broken_run(f"({child}, os._exit(7))")
    start = time.monotonic()
    with at_most(50):
        run_groups(folder)
    assert time.monotonic() - start < 50
    for trial in folder.trials()[:2]:
        assert trial.state == "failed"
        assert trial.error is not None
        assert trial.error.kind == "ProcessDied"
        assert trial.error.message == "its process ended with code 7"


@pytest.mark.slow
def test_a_second_interrupt_ends_a_deaf_worker_and_records_its_trial(
    broken_run: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    folder = broken_run(
        f"(signal.signal(signal.SIGTERM, signal.SIG_IGN), open({str(deaf)!r}, 'w'), time.sleep(600))"
    )
    before = set(children())

    def interrupt_twice() -> None:
        while not deaf.exists():
            time.sleep(0.05)
        for _ in range(2):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_twice)
    # The tests themselves may have been started with the signal ignored (in the background).
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with at_most(60), pytest.raises(KeyboardInterrupt):
            run_groups(folder, lambda group: group.bench is None)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert [trial.state for trial in folder.trials()] == ["pending", "interrupted", "pending"]
    assert set(children()) == before


def test_a_held_signal_interrupts_after_the_block() -> None:
    reached = []

    def hold() -> None:
        with signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end")

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            hold()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert reached


def test_a_worker_is_interrupted_once_and_not_while_it_writes() -> None:
    reached: list[str] = []
    text = "os.kill(os.getpid(), 15); os.kill(os.getpid(), 15); reached.append('the end')"
    names = {"__name__": "trainlab.record.made_up", "os": os, "reached": reached}
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGALRM)}

    def write_and_go_on() -> None:
        exec(text, names)  # noqa: S102  as a function of such a module
        time.sleep(60)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        interrupted_once()
        with pytest.raises(KeyboardInterrupt):
            write_and_go_on()
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert reached == ["the end"]
