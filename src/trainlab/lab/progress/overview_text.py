"""An overview of a run in words, a line each, and as JSON for programs."""

from collections.abc import Iterator
from typing import Any

from trainlab.lab.progress.labels import duration_text, end_text, group_label, trial_label
from trainlab.lab.progress.overview import Overview, RunningGroup
from trainlab.words import Words

MOST_NAMED = 10
"""Trials of one state that are named one by one."""


def overview_lines(overview: Overview, path: str, words: Words) -> Iterator[str]:
    """The study's progress, who runs it, what runs, what failed or was interrupted."""
    is_study = len({trial.cell for trial in overview.trials}) > 1
    yield progress_line(overview, words)
    yield _driver_line(overview, path, words)
    yield from running_lines(overview, words)
    for state in ("failed", "interrupted"):
        trials = overview.in_state(state)
        for trial in trials[:MOST_NAMED]:
            label = trial_label(trial, words, is_study=is_study)
            what = end_text(trial, words) or words.named("state", state)
            yield f"{label}{words('colon')}{what}"
        if len(trials) > MOST_NAMED:
            number = len(trials) - MOST_NAMED
            yield words("status_more", number=number, state=words.named("state", state))


def running_lines(overview: Overview, words: Words) -> Iterator[str]:
    """What runs, and how far it is."""
    is_study = len({trial.cell for trial in overview.trials}) > 1
    for group in overview.running:
        label = group_label(group.trials, words, is_study=is_study)
        yield f"{label}{words('colon')}{_how_far(group, words)}"


def overview_json(overview: Overview, path: str) -> dict[str, Any]:
    """The same for programs."""
    driver = overview.driver
    return {
        "run": path,
        "name": overview.name,
        "trials": len(overview.trials),
        "states": dict(overview.counts()),
        "is_finished": overview.is_finished,
        "is_driven": overview.is_driven,
        "driver": None
        if driver is None
        else {"user": driver.user, "host": driver.host, "pid": driver.pid, "begun": driver.begun},
        "left_s": overview.left_s,
        "running": [
            {
                "trials": [trial.id for trial in group.trials],
                "share": None if group.last is None else group.last.share,
                "epoch": None if group.last is None else group.last.epoch,
                "num_epochs": None if group.last is None else group.last.num_epochs,
                "elapsed_s": group.elapsed_s,
            }
            for group in overview.running
        ],
        "failed": [trial.id for trial in overview.in_state("failed")],
        "interrupted": [trial.id for trial in overview.in_state("interrupted")],
    }


def progress_line(overview: Overview, words: Words) -> str:
    """How many trials are in which state, and the time left."""
    counts = overview.counts()
    num_finished = sum(trial.is_finished for trial in overview.trials)
    parts = [words("status_finished", some=num_finished, all=len(overview.trials))]
    parts += [
        words("status_count", number=counts[state], state=words(f"status_{state}"))
        for state in ("running", "pending", "interrupted", "failed")
        if counts.get(state)
    ]
    if overview.left_s is not None and not overview.is_finished:
        parts.append(words("time_left", time=duration_text(overview.left_s, words)))
    return f"{overview.name}{words('colon')}{words.listed(parts)}"


def _driver_line(overview: Overview, path: str, words: Words) -> str:
    driver = overview.driver
    if overview.is_driven and driver is not None:
        who = {"user": driver.user, "host": driver.host, "pid": driver.pid}
        return words("status_driven", **who, begun=driver.begun)
    if overview.is_finished:
        return words("status_over", path=path)
    return words("status_left", path=path)


def _how_far(group: RunningGroup, words: Words) -> str:
    last, parts = group.last, []
    if last is not None and last.epoch is not None and (last.num_epochs or 1) > 1:
        parts.append(words("status_epoch", epoch=last.epoch, epochs=last.num_epochs))
    if last is not None and last.share is not None:
        parts.append(f"{100 * last.share:.0f}%")
    return words.listed([*parts, duration_text(group.elapsed_s, words)])
