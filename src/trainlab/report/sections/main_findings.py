"""The answer: the few findings that a reader with one minute should read."""

import math
from collections.abc import Sequence

from trainlab.analyse.findings.finding import Finding, Number

MOST = 5
SMALL = 0.05
"""A change of memory below this share answers nothing."""
ORDER = (
    "no_reset",
    "effect",
    "diverged",
    "accumulation",
    "vanishing_gradient",
    "exploding_gradient",
    "dead_units",
    "cost",
    "dominates",
    "scaling",
    "optimizer_share",
    "quality",
    "memory",
)
"""Kinds that can answer a question, the most telling first."""


def main_findings(found: Sequence[Finding], most: int = MOST) -> tuple[Finding, ...]:
    """At most so many lines: what was decided, one per factor or kind; what is open comes last.

    A run that is not whole says so in the first line, and one with open or unstable comparisons in
    the last ones: an answer without them would claim more than the study can.
    """
    first = [one for one in found if one.kind == "unfinished"]
    last = [one for one in found if one.kind in ("unstable", "undecided")]
    room = most - len(first) - len(last)
    return (*first, *_chosen(found, room), *last)[:most]


def _chosen(found: Sequence[Finding], room: int) -> list[Finding]:
    """The weightiest of each group, then the groups by weight."""
    best: dict[tuple[str, str, str], Finding] = {}
    for one in found:
        if one.kind not in ORDER or not _says_something(one):
            continue
        group = _group(one)
        if group not in best or _weight(one) > _weight(best[group]):
            best[group] = one
    decided = [one for one in best.values() if one.verdict in ("different", "equivalent")]
    decided.sort(key=lambda one: (ORDER.index(one.kind), -_weight(one)))
    facts = [one for one in best.values() if one.verdict is None]
    facts.sort(key=lambda one: (ORDER.index(one.kind), -_weight(one)))
    # Room is kept for one fact where there is any: a study of cost has more to say than its tests.
    kept = decided[: room - 1] if facts and len(decided) >= room else decided
    chosen = [*kept, *facts][: max(0, room)]
    # Where little was decided, the largest of what is open is shown as what it is.
    chosen += _open(found)[: max(0, room - len(chosen))]
    return sorted(chosen, key=found.index)


def _open(found: Sequence[Finding]) -> list[Finding]:
    """Of each factor the largest undecided effect on its first figure."""
    best: dict[str | None, Finding] = {}
    for one in found:
        if one.kind not in ("effect", "no_reset") or one.verdict != "cannot tell":
            continue
        first = best.setdefault(one.factor, one)
        if one.subject == first.subject and _weight(one) > _weight(first):
            best[one.factor] = one
    return sorted(best.values(), key=lambda one: -_weight(one))


def _group(found: Finding) -> tuple[str, str, str]:
    """Findings of one group say much the same."""
    if found.kind in ("effect", "no_reset"):
        return "effect", found.factor or "", ""
    mode = found.subject.partition("/")[0] if found.kind == "cost" else ""
    return found.kind, found.factor or "", mode


def _says_something(found: Finding) -> bool:
    """Comparisons that could not be decided are told by number, in the last line."""
    if found.kind in ("effect", "no_reset", "cost"):
        return found.verdict in ("different", "equivalent")
    if found.kind == "scaling":
        return found.numbers["fit"] == "fits"
    if found.kind == "memory":
        return abs(math.log(_number(found.numbers["ratio"]))) > SMALL
    if found.kind == "quality":
        return bool(found.numbers["num_reached"])
    return True


def _weight(found: Finding) -> float:
    """How much a finding says, among those of its group."""
    numbers = found.numbers
    if found.kind in ("effect", "no_reset"):
        # Accuracy on the test set is what people ask about; then the largest effect, in its spread.
        wanted = found.subject == "test/accuracy"
        size = abs(_number(numbers["difference"])) if found.verdict != "equivalent" else 0.0
        return 1e6 * wanted + size / (1 + abs(_number(numbers["mean_a"])))
    if found.kind in ("cost", "memory"):
        return abs(math.log(_number(numbers["ratio"])))
    if found.kind == "quality":
        seconds = numbers["median_s"]
        reached = _number(numbers["num_reached"]) / found.n
        return reached - (_number(seconds) * 1e-9 if seconds is not None else 0.0)
    trains = found.subject.startswith("train") or numbers.get("mode") == "train"
    return float(trains)


def _number(value: Number) -> float:
    return value if isinstance(value, int | float) else 0.0
