"""What the progress of a study says: which trial runs, how far it is, how it ended, in one line each."""

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from trainlab.lab.progress.time_left import TimeLeft
from trainlab.record.trial_record import TrialRecord
from trainlab.words import WORDS, Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import metric_value


def trial_label(trial: TrialRecord, words: Words, *, is_study: bool) -> str:
    """A trial of a study goes by its cell's name, one without a study by the workload's."""
    if trial.kind == "learn":
        seed = f" {words('seed')} {trial.seed}" if is_study or trial.seed != 1 else ""
        return f"{trial.cell if is_study else trial.workload}{seed}"
    mode = words.mode(trial.mode or "")
    name = f"{trial.cell} {mode}" if is_study else mode
    name = words("trial_again", name=name) if trial.again else name
    return words("trial_measured", name=name, watch=watch_text(trial, words))


def group_label(trials: Sequence[TrialRecord], words: Words, *, is_study: bool) -> str:
    """What trials that run in one process, or take turns, are called together."""
    first, *others = trials
    if others and all(trial.watch == "steps" for trial in trials):
        mode = words.mode(first.mode or "")
        return words("timing_in_turns", mode=mode, number=len(trials))
    if others and first.kind == "learn":
        return words("trained_together", number=len(trials))
    name = trial_label(first, words, is_study=is_study)
    return words.listed([name, *(watch_text(other, words) for other in others)])


def watch_text(trial: TrialRecord, words: Words) -> str:
    """What is measured in a cost trial."""
    return words(f"watch_{trial.watch or 'steps'}")


def end_text(trial: TrialRecord, words: Words) -> str:
    """How a trial ended, where that was not its last epoch; empty otherwise."""
    if trial.state == "failed" and trial.error is not None:
        message = error_line(trial.error.message, words.lang)
        first_line = next(iter(message.splitlines()), "")
        return words("ended_failed", kind=trial.error.kind, reason=first_line)
    if trial.state != "diverged":
        return ""
    if trial.diverged_at_step is not None:
        return words("ended_at_update", step=f"{trial.diverged_at_step:,}")
    is_last = trial.epochs_done == trial.settings.get("epochs")
    return "" if is_last else words("ended_in_test", epoch=trial.epochs_done)


def metric_texts(metrics: Mapping[str, float | None], words: Words) -> list[str]:
    """`train loss 0.3012`, `test accuracy 87.10%`."""
    return [f"{_short_name(n, words)} {_value(n, v, words)}" for n, v in metrics.items()]


def time_left_text(time_left: TimeLeft, words: Words) -> str:
    """The time left, or that it is not known yet."""
    left_s = time_left.left_s()
    if left_s is None:
        return words("time_unknown")
    return words("time_left", time=duration_text(left_s, words))


def duration_text(duration_s: float, words: Words) -> str:
    """`45 s`, `3:20 min`, `1:05 h`."""
    minutes, seconds = divmod(max(0, round(duration_s)), 60)
    if not minutes:
        return words("duration_s", seconds=seconds)
    if minutes < 60:
        return words("duration_min", minutes=minutes, seconds=f"{seconds:02}")
    return words("duration_h", hours=minutes // 60, minutes=f"{minutes % 60:02}")


def fitted(label: str, metrics: list[str], room: int, words: Words) -> tuple[str, str]:
    """Label and metrics that fit beside each other: the last metrics are left out first, then the end of
    the label, so that no number is cut."""
    for count in range(len(metrics), -1, -1):
        shown = words.listed(metrics[:count])
        if cell_len(label) + cell_len(shown) <= room:
            return label, shown
    parts = re.findall(r"[^ ,]+[ ,]*", label)
    while len(parts) > 1 and cell_len("".join(parts).rstrip(" ,")) + 1 > room:
        parts.pop()
    return "".join(parts).rstrip(" ,") + "…", ""


def _short_name(metric: str, words: Words) -> str:
    key = f"short_{metric.replace('/', '_')}"
    return words(key) if key in WORDS else metric.replace("/", " ")


def _value(metric: str, value: float | None, words: Words) -> str:
    return words("not_finite") if value is None else metric_value(metric, value)
