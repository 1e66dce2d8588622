"""Events as they are read while others still write them."""

from pathlib import Path

from trainlab.record.study_record import EventReader

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
