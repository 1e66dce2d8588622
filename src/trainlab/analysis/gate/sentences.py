"""The comparisons of a gate in words, and what would decide those that are open."""

import math
from collections.abc import Sequence

from trainlab.analysis.answer.learned import size_text
from trainlab.analysis.answer.open_points import SEED_OPTIONS, command_with
from trainlab.analysis.confounds import Confound
from trainlab.analysis.gate.check import USUAL_STD, Check
from trainlab.stats.one_sided import Judgement
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference, metric_value

TIME_KEYS: dict[Judgement, str] = {
    "worse": "gate_slower",
    "not worse": "gate_not_slower",
    "cannot tell": "gate_time_open",
}
METRIC_KEYS: dict[Judgement, str] = {
    "worse": "gate_worse",
    "not worse": "gate_not_worse",
    "cannot tell": "gate_metric_open",
}
NEEDS = {
    "processes": (
        "gate_processes_needed",
        "gate_processes_as_measured",
        "gate_processes_if_unchanged",
    ),
    "seeds": ("gate_seeds_needed", "gate_seeds_as_measured", "gate_seeds_if_unchanged"),
}
INSTEAD_OF = {"processes": ("processes", "max-processes"), "seeds": SEED_OPTIONS}
MOST_ASKED = 50
"""Processes or seeds that somebody might wait for."""
MOST_DIFFERENCES = 8
"""Named one by one; `compare` lists all."""


def check_sentence(check: Check, words: Words) -> str:
    """Verdict, change, bounds and margin of one comparison."""
    return words.tidy(_time(check, words) if check.is_cost else _metric(check, words))


def needs_sentence(kind: str, checks: Sequence[Check], words: Words) -> str:
    """How many processes or seeds would decide all of these; empty where none would."""
    needed = most_needed([one.needed for one in checks])
    unchanged = most_needed([one.needed_unchanged for one in checks])
    as_seen, as_seen_alone, if_unchanged = NEEDS[kind]
    if unchanged is None:
        return "" if needed is None else words(as_seen_alone, number=needed)
    if kind == "processes" and any(one.interval is None for one in checks):
        return words("gate_processes_usual", unchanged=unchanged, noise=_share(USUAL_STD))
    if needed is None:
        return words(if_unchanged, unchanged=unchanged)
    return words(as_seen, number=needed, unchanged=unchanged)


def command_for(command: str, option: str, checks: Sequence[Check]) -> str | None:
    """The command that made the run, with as many processes or seeds as would decide these checks if they
    are as they were seen; where nobody would wait for so many, if nothing has changed. None where that is
    no more than there were."""
    needed = most_needed([one.needed for one in checks])
    if needed is None or needed > MOST_ASKED:
        needed = most_needed([one.needed_unchanged for one in checks])
    there = min((min(one.num_run, one.num_baseline) for one in checks), default=0)
    if needed is None or not there < needed <= MOST_ASKED:
        return None
    return command_with(command, f"--{option} {needed}", INSTEAD_OF[option])


def differences_text(differs: Sequence[Confound], words: Words) -> str:
    """What else differs, from the baseline to the run; empty where nothing does."""
    if not differs:
        return ""
    parts = [
        f"{words.differing(one.what)} {words.level(one.first)} → {words.level(one.second)}"
        for one in differs[:MOST_DIFFERENCES]
    ]
    more = ["…"] if len(differs) > MOST_DIFFERENCES else []
    return words("gate_differs", differences=words("list_semicolon").join([*parts, *more]))


def most_needed(numbers: Sequence[int | None]) -> int | None:
    """The largest; None where one is not known, or there is none."""
    most = max((math.inf if one is None else one for one in numbers), default=math.inf)
    return None if math.isinf(most) else int(most)


def _time(check: Check, words: Words) -> str:
    mode = check.subject.partition("/")[0]
    counts = words("gate_processes", run=check.num_run, baseline=check.num_baseline)
    parts = {"step": words.step(mode), "counts": counts, "margin": _share(check.margin)}
    if check.change is None:
        return words("gate_not_measured", **parts)
    parts["ratio"] = figure(check.change, 4)
    if check.interval is None:
        return words("gate_time_no_noise", **parts)
    low, high = (figure(end, 4) for end in (check.interval.low, check.interval.high))
    return words(TIME_KEYS[check.verdict], **parts, low=low, high=high)


def _metric(check: Check, words: Words) -> str:
    metric = check.subject
    counts = words("gate_seeds", run=check.num_run, baseline=check.num_baseline)
    parts = {"metric": words.metric(metric), "counts": counts}
    if check.has_diverged:
        return words("gate_diverged", **parts)
    if check.interval is None or check.change is None:
        return words("gate_metric_no_noise", **parts)
    low, high = (
        metric_difference(metric, end, "", check.change).strip()
        for end in (check.interval.low, check.interval.high)
    )
    return words(
        METRIC_KEYS[check.verdict],
        **parts,
        value=metric_value(metric, check.run),
        margin=size_text(metric, check.margin, words),
        change=metric_difference(metric, check.change, words("points")),
        low=low,
        high=high,
    )


def _share(share: float) -> str:
    """`5%`, `2.5%`."""
    return f"{100 * share:.3g}%"
