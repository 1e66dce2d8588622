"""`status --watch` off a terminal: a state now and then, until nobody runs it."""

import pytest

from trainlab.cli import look_verbs
from trainlab.lab import run_progress


def test_it_is_told_until_the_run_has_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked = []
    monkeypatch.setattr(look_verbs.time, "sleep", looked.append)
    monkeypatch.setattr(look_verbs, "open_run", lambda run: None)

    class Looked:
        def look(self) -> None:
            self.is_driven = len(looked) < 2

    monkeypatch.setattr(run_progress, "RunProgress", lambda run: Looked())
    monkeypatch.setattr(run_progress, "overview_lines", lambda *given: [f"look {len(looked)}"])
    look_verbs.StatusVerb.of({"run": "r", "watch": True})()
    assert capsys.readouterr().out.split("\n") == ["look 0", "look 1", "look 2", ""]
