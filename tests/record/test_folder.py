import math
import resource
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from trainlab.errors import RecordError
from trainlab.record.files import LineWriter, numbered_lines, read_json, write_json
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
    with closing(LineWriter(path)) as lines:
        lines.write({"step": 1})
        lines.write({"step": 2})
    path.write_bytes(path.read_bytes() + '{"step": 3, "好'.encode()[:-1])
    assert [line for _, line in numbered_lines(path)] == [{"step": 1}, {"step": 2}]


def test_json_that_is_not_json_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": math.nan})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_hits_the_limit_keeps_the_old_file_whole(tmp_path: Path) -> None:
    path, limit = tmp_path / "study.json", resource.getrlimit(resource.RLIMIT_FSIZE)
    write_json(path, {"a": 1})
    told = "study.json: cannot be written: File too large; free some space"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(RecordError, match=told):
            write_json(path, {"a": "x" * 5000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert read_json(path) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_a_trial_cannot_be_named_so_that_it_lies_elsewhere(tmp_path: Path) -> None:
    asked = {"name": "s", "created": "", "trainlab": "", "command": "", "study": {}}
    for trial in ("..", "../../outside", "a/b", "/etc", ""):
        groups = [{"trials": [trial], "is_alone": False}]
        write_json(tmp_path / "study.json", {"format": FORMAT, **asked, "groups": groups})
        with pytest.raises(RecordError, match=r"groups\.0\.trials\.0: "):
            RunFolder(tmp_path).study()


def test_texts_of_records_are_plain_when_they_are_read(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a\x1b[31m": ["\ud800\x1b[1;31m", "tab\tend\n", "\x9b2J"]})
    plain = "\N{REPLACEMENT CHARACTER}"
    assert read_json(tmp_path / "x.json") == {"a": [plain, "tab\tend\n", f"{plain}2J"]}
    with closing(LineWriter(tmp_path / "x.jsonl")) as lines:
        lines.write({"test/\x1b\ud800": 1.0})
    assert list(numbered_lines(tmp_path / "x.jsonl")) == [(1, {f"test/{plain}{plain}": 1.0})]


# Events, read while others still write them.

BEGINS = '{"kind": "group_begins", "at": "2026-11-15T10:00:00+00:00", "trials": ["a"]}\n'
ENDS = '{"kind": "group_ends", "at": "2026-11-15T10:00:02+00:00", "trials": ["a"]}\n'
ELSEWHERE = '{"kind": "group_begins", "at": "2026-11-15T10:00:01+00:00", "trials": ["b"]}\n'


def test_events_of_all_processes_are_read_once_in_the_order_of_their_times(tmp_path: Path) -> None:
    file, reader = tmp_path / "host-1.jsonl", EventReader(tmp_path)
    for here, elsewhere, told in (
        ("", "", []),
        # Half a line waits for its other half.
        (BEGINS + ENDS[:20], "", [("group_begins", ("a",))]),
        (BEGINS + ENDS[:20], "", []),
        (BEGINS + ENDS, ELSEWHERE, [("group_begins", ("b",)), ("group_ends", ("a",))]),
    ):
        file.write_text(here)
        (tmp_path / "other-1.jsonl").write_text(elsewhere)
        assert [(event.kind, event.trials) for event in reader.new()] == told
    file.write_text('{"kind": "of a later version"}\n{\n' + BEGINS)
    assert [event.trials for event in EventReader(tmp_path).new()] == [("a",), ("b",)]
