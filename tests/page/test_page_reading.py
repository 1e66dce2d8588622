"""What the page reads, where and how often: nobody waits for a large run, and nothing is read in vain."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from serving import serving

from fabricate import Fabricated, made_study
from trainlab.errors import RecordError, WorkloadError
from trainlab.execute.planned_run import check_resumable, code_of
from trainlab.page import live, reading
from trainlab.page.live import LiveRun, RunList
from trainlab.page.reading import NICENESS, Reader
from trainlab.page.runs import find_runs, listed

WAIT_S = 60.0


def test_a_large_run_is_read_in_a_process_of_its_own_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "is_large", lambda path: True)
    monkeypatch.chdir(tmp_path)
    # What is urgent is done meanwhile: the large one waits for it.
    waiting = "until [ -e seen ]; do sleep .05; done; echo $PPID; nice"
    urgent = "touch seen; echo $PPID"

    async def both() -> tuple[list[int], int]:
        reader = Reader()
        large = asyncio.ensure_future(reader.call_later(subprocess.getoutput, waiting))
        other = int(await reader.call(subprocess.getoutput, urgent))
        found = [int(word) for word in (await large).split()]
        reader.close()
        return found, other

    (apart, niceness), other = asyncio.run(asyncio.wait_for(both(), WAIT_S))
    assert apart != other
    assert niceness == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    deadline_s = time.monotonic() + WAIT_S
    while any(map(psutil.pid_exists, (apart, other))) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, (apart, other)))


def test_a_reading_process_whose_server_has_gone_ends_at_once() -> None:
    code = "from trainlab.machine.processes import go_last; go_last(parent=-1, niceness=0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1


class InProcess:
    """Reads here, and counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def call(self, work: Any, *args: Any) -> Any:
        self.calls.append(work.__name__)
        return work(*args)

    call_later = call


def test_what_nobody_drives_is_read_again_once_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_S", 0.01)
    monkeypatch.setattr(live, "LOOK_SHARE", 1e9)
    Fabricated().write(tmp_path / "run", made_study())
    reader = InProcess()

    async def followed() -> None:
        one = listed(tmp_path, tmp_path / "run")
        feed = LiveRun(cast(Reader, reader), one, "en", is_read_only=False)
        feed.num_listeners = 1
        feed.begin()
        for times in (1, 2):
            while reader.calls.count("look") < times:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert reader.calls.count("look") == times
            (tmp_path / "run" / "drivers").mkdir(exist_ok=True)
            (tmp_path / "run" / "drivers" / f"{times}.json").write_text("{}")
        assert "answer" in [part.id for part in feed.parts]
        feed.num_listeners = 0

    asyncio.run(asyncio.wait_for(followed(), WAIT_S))
    assert reader.calls.count("report_parts") == 1


def test_a_row_of_the_list_is_made_again_only_for_what_has_changed(tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        Fabricated().write(tmp_path / name, made_study())
        runs.append(listed(tmp_path, tmp_path / name))
    feed = RunList("en")
    feed.refresh(runs)
    first = feed.parts
    runs[0] = listed(tmp_path, tmp_path / "a")
    feed.refresh(runs)
    assert [one is other for one, other in zip(first[1:], feed.parts[1:], strict=True)] == [
        True
    ] * 2
    assert feed._rows[runs[0].id][0] is runs[0]


def test_the_frame_comes_before_anything_is_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Fabricated().write(tmp_path / "runs" / name, made_study())
    with serving(tmp_path / "runs") as served:
        status, text, _ = served.ask("/")
        assert status == 200
        assert text.count('<tr id="run-') == 2
        assert "vega.js" not in text
        one = listed(tmp_path / "runs", tmp_path / "runs" / "a").id
        _, text, _ = served.ask(f"/run/{one}")
        assert "Reading the records" in text
        assert "vega.js" in text


def test_no_command_of_a_run_that_somebody_else_has_made_is_started(tmp_path: Path) -> None:
    run = Fabricated().write(tmp_path / "run", made_study(vary={"lr": (0.1, 0.01)}))
    record = run.study()
    run.write_study(
        record.model_copy(update={"command": "trainlab run /x/evil.py:workload --seeds 2"})
    )
    with pytest.raises(RecordError, match="you have not started this run from here"):
        reading.settling_command(str(run.path), 0)
    following = reading.report_parts(str(run.path), "x", "en", False, False)[-1].html
    assert "button" not in following
    # A file alone is code, too; so is what its trials name in place of their study.
    run.write_study(record.model_copy(update={"study": {**record.study, "workload": "/x/evil.py"}}))
    assert code_of(run) == "/x/evil.py"
    with pytest.raises(WorkloadError, match="has trials of tiny"):
        check_resumable(run, run.study(), allow_changed=False, is_trusted=True)


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    run = Fabricated().write(tmp_path / "run", made_study())
    os.mkfifo(run.path / "diagnosis.json")
    with pytest.raises(RecordError, match=r"diagnosis\.json: is a link or a pipe"):
        reading.checked_folder(str(run.path))


def test_one_folder_that_makes_no_sense_leaves_the_list_whole(tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "sound", made_study())
    for name, text in (("deep", "[" * 200_000), ("odd", '{"name": "\\ud800", "study": 3}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.json").write_text(text)
    (tmp_path / "bad\udcff").mkdir()
    (tmp_path / "bad\udcff" / "study.json").write_text("{}")
    rows = RunList("en")
    rows.refresh([listed(tmp_path, path) for path in find_runs(tmp_path)])
    assert len(rows.parts) == 5
    assert "".join(part.html for part in rows.parts).encode()


def test_compared_runs_are_told_by_their_names_once_and_others_keep_no_curves_away(
    tmp_path: Path,
) -> None:
    names = ("a", "b", "c", "other")
    for name in names:
        study = made_study(
            vary={"lr": (0.1, 0.01)}, workload="tiny" if name != "other" else "mnist-cnn"
        )
        made = Fabricated(
            state=lambda trial: "failed" if trial.seed == 1 else "done", step_points=5
        )
        made.write(tmp_path / name, study)
    parts = reading.compared([str(tmp_path / name) for name in names], "en")
    header = next(part.html for part in parts if part.id == "header")
    told = header.split("<")
    assert [sum(f"{name}: 2 of" in one for one in told) for name in names] == [1] * 4, header
    assert "other is about another workload than a" in header
    assert "curves" in [part.id for part in parts]
