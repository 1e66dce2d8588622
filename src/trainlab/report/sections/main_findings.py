"""The answer: the few findings that a reader with one minute should read."""

from collections.abc import Sequence

from trainlab.analyse.findings.cost import Unstable
from trainlab.analyse.findings.finding import UNRANKED, Finding
from trainlab.analyse.findings.learning import Effect
from trainlab.analyse.findings.run import Undecided, Unfinished

MOST = 5


def main_findings(found: Sequence[Finding], most: int = MOST) -> tuple[Finding, ...]:
    """At most so many lines: what was decided, one per factor or kind; what is open comes last.

    A run that is not whole says so in the first line, and one with open or unstable comparisons in
    the last ones: an answer without them would claim more than the study can.
    """
    first = [one for one in found if isinstance(one, Unfinished)]
    last = [one for one in found if isinstance(one, Unstable | Undecided)]
    room = most - len(first) - len(last)
    return (*first, *_chosen(found, room), *last)[:most]


def _chosen(found: Sequence[Finding], room: int) -> list[Finding]:
    """The weightiest of each group, then the groups by weight."""
    best: dict[tuple[str, ...], Finding] = {}
    for one in found:
        if one.rank == UNRANKED or not one.says_something:
            continue
        if one.group not in best or one.weight > best[one.group].weight:
            best[one.group] = one
    ranked = sorted(best.values(), key=lambda one: (one.rank, -one.weight))
    decided = [one for one in ranked if one.verdict in ("different", "equivalent")]
    facts = [one for one in ranked if one.verdict is None]
    # Room is kept for one fact where there is any: a study of cost has more to say than its tests.
    kept = decided[: room - 1] if facts and len(decided) >= room else decided
    chosen = [*kept, *facts][: max(0, room)]
    # Where little was decided, the largest of what is open is shown as what it is.
    chosen += _open(found)[: max(0, room - len(chosen))]
    return sorted(chosen, key=found.index)


def _open(found: Sequence[Finding]) -> list[Effect]:
    """Of each factor the largest undecided effect on its first figure."""
    best: dict[str | None, Effect] = {}
    for one in found:
        if not isinstance(one, Effect) or one.verdict != "cannot tell":
            continue
        first = best.setdefault(one.factor, one)
        if one.subject == first.subject and one.weight > first.weight:
            best[one.factor] = one
    return sorted(best.values(), key=lambda one: -one.weight)
