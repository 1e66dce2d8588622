"""What the answer says about a script that was watched: where its time goes, and what stands out."""

from collections.abc import Iterator, Sequence

from trainlab.analysis.answer.sentence import Sentence
from trainlab.analysis.finding import Finding, by_importance
from trainlab.analysis.scripts import STARTUP, ScriptFinding, ScriptTime
from trainlab.words import Words

MOST_TOLD = 3


def script_sentences(findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """The whole first, of a single setting; then what stands out, each where it is largest."""
    found = [one for one in findings if isinstance(one, ScriptFinding)]
    for time in found:
        if isinstance(time, ScriptTime) and time.num_cells == 1:
            yield Sentence(time.whole(words), "script", (time,))
    largest: dict[tuple[str, str], Finding] = {}
    for one in by_importance(one for one in found if not _is_told(one)):
        largest.setdefault((one.kind, one.subject), one)
    for one in list(largest.values())[:MOST_TOLD]:
        yield Sentence(one.sentence(words), "script", (one,))


def _is_told(one: ScriptFinding) -> bool:
    """What the first sentence says already."""
    return isinstance(one, ScriptTime) or (one.num_cells == 1 and one.subject == STARTUP)
