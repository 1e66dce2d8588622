"""`status --watch` off a terminal: the end of a run is told as it comes."""

import pytest

from trainlab.cli import look_verbs
from trainlab.lab import run_progress


def test_the_end_is_told_at_once_and_not_at_the_next_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(look_verbs.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(look_verbs.time, "sleep", lambda s: now_s.__setitem__(0, now_s[0] + s))
    monkeypatch.setattr("trainlab.lab.open_run", lambda run: None)

    class Looked:
        def look(self) -> None:
            self.is_driven = now_s[0] < look_verbs.LINES_S + 1.0

    monkeypatch.setattr(run_progress, "RunProgress", lambda run: Looked())
    monkeypatch.setattr(run_progress, "overview_lines", lambda *given: [f"at {now_s[0]:g}"])
    look_verbs.StatusVerb.of({"run": "r", "watch": True})()
    assert capsys.readouterr().out.split("\n") == ["at 0", "at 5", "at 6", ""]
