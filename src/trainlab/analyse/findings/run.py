"""What is to be said about a run as a whole: what did not end well, and what stayed open."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analyse.evidence import ENDED_WELL, Evidence
from trainlab.analyse.findings.finding import Finding, num_seeds
from trainlab.analyse.findings.learning import Effect
from trainlab.words import Words

ENDED_BADLY = ("failed", "interrupted", "pending")


@dataclass(frozen=True, kw_only=True)
class Unfinished(Finding):
    """Trials that did not end well, or never ran."""

    kind = "unfinished"
    section = "run"

    num_done: int
    num_planned: int
    num_failed: int
    num_interrupted: int
    num_pending: int

    def tell(self, words: Words) -> str:
        states = [
            words("trials_in_state", number=number, state=words.named("state", state))
            for state in ENDED_BADLY
            if (number := self.numbers[f"num_{state}"])
        ]
        return self.fill(words, "unfinished", states=words.listed(states))


@dataclass(frozen=True, kw_only=True)
class Undecided(Finding):
    """Comparisons that could not be decided, and what it would take."""

    kind = "undecided"
    section = "method"

    num_open: int
    num_tested: int
    most_seeds: int | None
    """Of the open comparisons of what was learned."""
    fewest_seeds: int | None
    seeds_needed: int | None

    def tell(self, words: Words) -> str:
        text = self.fill(words, "undecided")
        fewest, seeds = self.fewest_seeds, self.most_seeds
        if fewest is None or seeds is None or seeds >= fewest:
            return text
        few = words("undecidable", seeds=num_seeds(seeds, words), fewest=fewest)
        return words.sentences(text, few)


def unfinished_findings(evidence: Evidence) -> Iterator[Finding]:
    """One, unless every trial ended well."""
    states = [trial.state for trial in evidence.trials]
    done = sum(state in ENDED_WELL for state in states)
    if done < len(states):
        yield Unfinished(
            subject="trials",
            cells=(),
            num_done=done,
            num_planned=len(states),
            num_failed=states.count("failed"),
            num_interrupted=states.count("interrupted"),
            num_pending=states.count("pending") + states.count("running"),
            n=done,
        )


def undecided_findings(others: Sequence[Finding]) -> Iterator[Finding]:
    """One, where a comparison among the others stayed open."""
    tested = [one for one in others if one.verdict is not None]
    still_open = [one for one in tested if one.verdict == "cannot tell"]
    if not still_open:
        return
    learn = [one for one in still_open if isinstance(one, Effect)]
    fewest = [one.fewest_seeds for one in learn if one.fewest_seeds is not None]
    needed = [one.seeds_needed for one in learn if one.seeds_needed is not None]
    yield Undecided(
        subject="comparisons",
        cells=tuple(dict.fromkeys(one.cells[1] for one in still_open)),
        num_open=len(still_open),
        num_tested=len(tested),
        most_seeds=max((one.n for one in learn), default=None),
        fewest_seeds=max(fewest, default=None),
        seeds_needed=min(needed, default=None),
        n=len(still_open),
        verdict="cannot tell",
    )
