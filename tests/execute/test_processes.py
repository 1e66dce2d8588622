import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from asking import groups_of, study_of
from children import children
from trainlab.execute.executors import executor_for
from trainlab.execute.planned_run import IsOver, start_run
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader


def never() -> bool:
    return False


QUICK = CostSpec(processes=2, budget_s=0.1, warmup_steps=2, active_steps=2, trace_mb=0)


def started(tiny_file: Path, out: Path) -> RunFolder:
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, cost=QUICK, learn=False)
    return start_run(study, out)


def run_groups(
    folder: RunFolder,
    wanted: Callable[[Group], bool] = lambda group: True,
    is_over: IsOver = never,
) -> None:
    groups = [group for group in groups_of(folder) if wanted(group)]
    with closing(executor_for("processes", Loader())) as executor:
        executor.run(folder, groups, is_over)


@pytest.mark.slow
def test_every_timed_trial_has_a_process_and_watched_ones_share_another(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainlab.execute.executors.usable_vcpus", lambda: 4)
    seen = tmp_path / "seen"
    marker = f"""
import os
open({str(seen)!r}, "a").write(f"{{os.getpid()}}\\n")
"""
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + marker)
    run_groups(folder)
    assert len(set(seen.read_text().split())) == 3
    assert {trial.state for trial in folder.trials()} == {"done"}
    assert {trial.kind for trial in folder.trials()} == {"cost"}
    # A watched process never supplies a speed, and a timed one nothing else.
    homes = [(trial.watch, folder.trial(trial.id)) for trial in folder.trials()]
    assert [watch for watch, _ in homes] == ["steps", "steps", "layers", "operators"]
    for watch, home in homes:
        assert home.cost.exists() is (watch == "steps")
        assert home.operators.exists() is (watch == "operators")
        for record in (home.layers, home.memory, home.limits):
            assert record.exists() is (watch == "layers")


def test_a_process_that_is_killed_leaves_a_failed_trial(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = "\nimport os\nif os.environ.get('KILL'):\n    os.kill(os.getpid(), 9)\n"
    tiny_file.write_text(tiny_file.read_text() + killer)
    folder = started(tiny_file, tmp_path / "r")
    monkeypatch.setenv("KILL", "1")
    run_groups(folder, lambda group: group.ids[0].endswith("process1"))
    first = folder.trials()[0]
    assert first.state == "failed"
    assert first.error is not None
    assert first.error.message == "its process was ended by SIGKILL"


def test_an_interrupted_process_leaves_interrupted_trials_and_is_gone(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that does not answer the interrupt and has to be killed."""
    deaf = "\nimport os, signal, time\nif os.environ.get('DEAF'):\n"
    deaf += "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\n"
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + deaf)
    monkeypatch.setenv("DEAF", "1")
    monkeypatch.setattr("trainlab.execute.launch.INTERRUPTED_S", 0.5)
    before = set(children())

    def interrupt() -> None:
        first = folder.trial(folder.trials()[0].id)
        while first.read().state != "running":
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # The tests themselves may have been started with the signal ignored (in the background).
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_groups(folder, lambda group: group.ids[0].endswith("process1"))
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert folder.trials()[0].state == "interrupted"
    assert set(children()) == before
