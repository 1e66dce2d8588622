"""A list or the like of a script that is emptied, but for what it got last, at the end of every step."""

from collections import deque
from collections.abc import MutableMapping, MutableSequence
from pathlib import Path
from typing import Any

from trainlab.watching.changes.change import Change
from trainlab.watching.finding.growing import containers_of

LOOK_EVERY = 10
"""Steps between two looks for the container: a script that runs again has another."""


def drop_container(change: Change, script: Path) -> None:
    """By its name in the script, as `history` or `self.history`."""
    found: list[Any] = []
    num_steps = 0

    def step_ended() -> None:
        nonlocal found, num_steps
        if num_steps % LOOK_EVERY == 0:
            found = [one for name, one in containers_of(script) if name == change.value]
        num_steps += 1
        for one in found:
            if len(one) > 1:
                change.num_uses += 1
                keep_last(one)

    change.on_step = step_ended


def keep_last(container: Any) -> None:
    """Takes all but the last out of a list, a deque or a mapping."""
    if isinstance(container, deque):
        while len(container) > 1:
            container.popleft()
    elif isinstance(container, MutableSequence):
        del container[:-1]
    elif isinstance(container, MutableMapping):
        for key in list(container)[:-1]:
            del container[key]
