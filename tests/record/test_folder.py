import math
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from trainlab.errors import RecordError
from trainlab.record.files import (
    LineWriter,
    numbered_lines,
    read_json,
    write_json,
)
from trainlab.record.run_folder import RunFolder, TrialFolder, create_run
from trainlab.record.schema import FORMAT
from trainlab.record.study_record import EventReader
from trainlab.record.trial_record import TrialRecord

NOW = datetime(2026, 1, 31, 10, 15, 0)
TRIAL = TrialRecord(id="t", kind="learn", workload="w", seed=1, settings={})


def test_a_run_folder_is_named_after_study_and_time_and_never_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [create_run(None, "mnist", NOW).path.name for _ in range(2)]
    assert names == ["mnist-2026-01-31T10-15-00", "mnist-2026-01-31T10-15-00-2"]
    (tmp_path / "x").write_text("precious")
    with pytest.raises(RecordError, match="is not empty; choose another --out"):
        create_run(tmp_path, "mnist", NOW)


def test_a_record_that_is_none_of_ours_is_told_with_its_place(tmp_path: Path) -> None:
    folder, later = TrialFolder(tmp_path / "t"), FORMAT + 1
    folder.write(TRIAL)
    for change, told in (
        ({"format": later}, f"format {later}, this trainlab reads up to {FORMAT}; update it"),
        ({"seed": "x"}, r"trial\.json: seed: .*integer"),
    ):
        write_json(folder.trial_file, read_json(folder.trial_file) | {"format": FORMAT} | change)
        with pytest.raises(RecordError, match=told):
            folder.read()
    for text in ("{", "[1]", "\x00", '{"format": ', '{"x": ' + 10_000 * "["):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(RecordError, match=r"study\.json: (is not JSON|holds a list)"):
            RunFolder(tmp_path).study()


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    lines = LineWriter(path)
    lines.write({"step": 1})
    lines.write({"step": 2})
    lines.close()
    path.write_bytes(path.read_bytes() + '{"step": 3, "好'.encode()[:-1])
    assert [line for _, line in numbered_lines(path)] == [{"step": 1}, {"step": 2}]


def test_json_that_is_not_json_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": math.nan})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_hits_the_limit_keeps_the_old_file_whole(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from pathlib import Path
from trainlab.errors import RecordError
from trainlab.record.files import write_json
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path({str(tmp_path)!r}) / "study.json"
write_json(path, {{"a": 1}})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_json(path, {{"a": "x" * 5000}})
except RecordError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "study.json: cannot be written: File too large; free some space" in done.stdout
    assert read_json(tmp_path / "study.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_a_trial_cannot_be_named_so_that_it_lies_elsewhere(tmp_path: Path) -> None:
    asked = {"name": "s", "created": "", "trainlab": "", "command": "", "study": {}}
    for trial in ("..", "../../outside", "a/b", "/etc", ""):
        groups = [{"trials": [trial], "is_alone": False}]
        write_json(tmp_path / "study.json", {"format": FORMAT, **asked, "groups": groups})
        with pytest.raises(RecordError, match=r"groups\.0\.trials\.0: "):
            RunFolder(tmp_path).study()


def test_texts_of_records_are_plain_when_they_are_read(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a\x1b[31m": ["\ud800", "tab\tend\n", "\x9b2J"]})
    plain = "\N{REPLACEMENT CHARACTER}"
    assert read_json(tmp_path / "x.json") == {f"a{plain}[31m": [plain, "tab\tend\n", f"{plain}2J"]}
    lines = LineWriter(tmp_path / "x.jsonl")
    lines.write({"test/\x1b\ud800": 1.0})
    lines.close()
    assert list(numbered_lines(tmp_path / "x.jsonl")) == [(1, {f"test/{plain}{plain}": 1.0})]


# Events, read while others still write them.

BEGINS = '{"kind": "group_begins", "at": "2026-11-15T10:00:00+00:00", "trials": ["a"]}\n'
ENDS = '{"kind": "group_ends", "at": "2026-11-15T10:00:02+00:00", "trials": ["a"]}\n'
ELSEWHERE = '{"kind": "group_begins", "at": "2026-11-15T10:00:01+00:00", "trials": ["b"]}\n'


def kinds(reader: EventReader) -> list[tuple[str, tuple[str, ...]]]:
    return [(event.kind, event.trials) for event in reader.new()]


def test_each_event_is_read_once_and_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file, reader = tmp_path / "host-1.jsonl", EventReader(tmp_path)
    assert reader.new() == []
    file.write_text(BEGINS + ENDS[:20])
    assert kinds(reader) == [("group_begins", ("a",))]
    assert reader.new() == []
    file.write_text(BEGINS + ENDS)
    assert kinds(reader) == [("group_ends", ("a",))]


def test_events_of_several_processes_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    reader = EventReader(tmp_path)
    (tmp_path / "a-1.jsonl").write_text(BEGINS + ENDS)
    (tmp_path / "b-1.jsonl").write_text(ELSEWHERE)
    assert [trials for _, trials in kinds(reader)] == [("a",), ("b",), ("a",)]


def test_events_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text('{"kind": "of a later version"}\n{\n' + BEGINS)
    assert kinds(EventReader(tmp_path)) == [("group_begins", ("a",))]
