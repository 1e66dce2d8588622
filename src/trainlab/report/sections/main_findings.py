"""The answer: the few findings that a reader with one minute should read."""

from collections.abc import Sequence

from trainlab.analyse.findings.disturbed import Unstable
from trainlab.analyse.findings.effects import Effect
from trainlab.analyse.findings.finding import UNRANKED, Finding
from trainlab.analyse.findings.run import Undecided, Unfinished

MOST = 5


def main_findings(findings: Sequence[Finding], most: int = MOST) -> tuple[Finding, ...]:
    """At most so many: what was decided, one per factor or kind; what is undecided comes last.

    A run that is not finished says so first, and one with undecided or unstable comparisons last: an
    answer without them would claim more than the study can.
    """
    first = [finding for finding in findings if isinstance(finding, Unfinished)]
    last = [finding for finding in findings if isinstance(finding, Unstable | Undecided)]
    room = most - len(first) - len(last)
    return (*first, *_chosen(findings, room), *last)[:most]


def _chosen(findings: Sequence[Finding], room: int) -> list[Finding]:
    """The weightiest of each group, then the groups by weight."""
    best: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        if finding.rank == UNRANKED or not finding.says_something:
            continue
        if finding.weight > best.setdefault(finding.group, finding).weight:
            best[finding.group] = finding
    ranked = sorted(best.values(), key=lambda finding: (finding.rank, -finding.weight))
    decided = [
        finding for finding in ranked if finding.verdict in ("different", "equivalent", "identical")
    ]
    facts = [finding for finding in ranked if finding.verdict is None]
    # Room is kept for one fact where there is any: a study of cost has more to say than its tests.
    if facts and len(decided) >= room:
        decided = decided[: room - 1]
    chosen = [*decided, *facts][: max(0, room)]
    # Where little was decided, the largest undecided effects are shown, marked as undecided.
    chosen += _undecided(findings)[: max(0, room - len(chosen))]
    return sorted(chosen, key=findings.index)


def _undecided(findings: Sequence[Finding]) -> list[Effect]:
    """Of each factor, the largest undecided effect on the metric that its first one is about."""
    largest: dict[str | None, Effect] = {}
    for effect in findings:
        if isinstance(effect, Effect) and effect.verdict == "cannot tell":
            best = largest.setdefault(effect.factor, effect)
            if effect.subject == best.subject and effect.weight > best.weight:
                largest[effect.factor] = effect
    return sorted(largest.values(), key=lambda effect: -effect.weight)
