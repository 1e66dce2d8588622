"""`status --watch` off a terminal: the end of a run is told as it comes."""

from pathlib import Path

import pytest
from rich.text import Text

from trainlab.cli import look_verbs


def test_the_end_is_told_at_once_and_not_at_the_next_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(look_verbs.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(look_verbs.time, "sleep", lambda s: now_s.__setitem__(0, now_s[0] + s))
    monkeypatch.setattr("trainlab.lab.open_run", lambda run: None)
    monkeypatch.setattr("trainlab.lab.run_progress.Onlooker", lambda run: None)
    ends_s = look_verbs.LINES_S + 1.0

    def text(*given: object) -> tuple[Text, bool]:
        return Text(f"at {now_s[0]:g}"), now_s[0] < ends_s

    monkeypatch.setattr(look_verbs, "_status_text", text)
    look_verbs.status(Path("r"), watch=True)
    assert capsys.readouterr().out.split("\n") == ["at 0", "at 5", "at 6", ""]
