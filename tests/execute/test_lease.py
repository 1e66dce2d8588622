"""A run folder has one driver, and a trial one attempt that may write."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from trainlab.errors import RecordError
from trainlab.execute import lease
from trainlab.execute.attempt import Attempt
from trainlab.execute.lease import ask_to_stop, holder_of, leased
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import settings_for

HOLD = """
import sys, time
from pathlib import Path
from trainlab.execute.lease import leased
from trainlab.record.run_folder import RunFolder
with leased(RunFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


def read_unsealed(path: Path) -> dict[str, Any]:
    """A record that can be changed: without the digest of what it was."""
    return {name: value for name, value in json.loads(path.read_text()).items() if name != "sha256"}


def test_a_second_driver_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    words = [sys.executable, "-P", "-c", HOLD, tmp_path]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RecordError, match=rf"is being run by .* on .*, process {holder.pid};"):
            leased(run).__enter__()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with leased(run):
        # The same process id, started at another time, would be another process.
        ours = read_unsealed(run.drivers_folder / "2.json")
        reused = ours | {"process": "1"}
        (run.drivers_folder / "3.json").write_text(json.dumps(reused))
        with leased(run):
            assert holder_of(run) is not None
    names = sorted(path.name for path in run.drivers_folder.iterdir())
    assert names == ["1.json", "2.json", "3.json", "4.json"]


def test_a_driver_stops_when_it_is_asked_to_or_has_lost_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, run = threading.Event(), RunFolder(tmp_path)
    monkeypatch.setattr(lease, "POLL_S", 0.02)
    before = signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    try:
        for end in (ask_to_stop, lambda run: (run.drivers_folder / "3.json").write_text("{}")):
            stopped.clear()
            with leased(run):
                end(run)
                assert stopped.wait(30)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_driver_on_another_machine_is_watched_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "POLL_S", 0.02)
    monkeypatch.setattr(lease, "WATCH_S", 0.1)
    run, seen = RunFolder(tmp_path), list[str]()
    with leased(run):
        file = run.drivers_folder / "1.json"
        other = read_unsealed(file) | {"machine": "elsewhere", "host": "far"}

    def renew(driver: lease.Driver) -> None:
        seen.append(driver.host)
        file.write_text(json.dumps(other | {"renewals": 7, "has_ended": False}))

    file.write_text(json.dumps(other | {"has_ended": False}))
    with pytest.raises(RecordError, match=r"is being run by .* on far"):
        leased(run, renew).__enter__()
    with leased(run, lambda driver: seen.append(driver.host)):
        assert holder_of(run) is not None
    assert seen == ["far", "far"]


def test_an_attempt_that_was_replaced_writes_nothing_more(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    trial = Trial(id="t", workload="tiny", seed=1, settings=settings_for({}, {}))
    run.trial("t").write(TrialRecord(**trial.model_dump(mode="json")))
    lost, replacement = (Attempt(run.trial("t"), "here") for _ in range(2))
    lost.begin()
    replacement.begin()
    with pytest.raises(RecordError, match="another attempt runs this trial now"):
        lost.end()
    record = run.trial("t").read()
    assert (record.state, record.attempt) == ("running", 2)
    replacement.progress.state = "done"
    replacement.end()
    assert run.trial("t").read().state == "done"
