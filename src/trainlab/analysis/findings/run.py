"""Findings about a run as a whole: trials that did not end well, comparisons that were not decided."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.finding import CAUSES, Cause, Finding, num_seeds
from trainlab.analysis.findings.effects import Effect
from trainlab.stats.verdict import FEWEST_SEEDS
from trainlab.words import Words

ENDED_BADLY = ("failed", "interrupted", "running", "pending", "damaged")


@dataclass(frozen=True, kw_only=True)
class Unfinished(Finding):
    """Trials that did not end well, or never ran."""

    kind = "unfinished"
    section = "run"

    num_done: int
    num_planned: int
    num_failed: int
    num_interrupted: int
    num_running: int
    """Begun and not ended: they run now, or their process is gone."""
    num_pending: int
    num_damaged: int
    """Their records cannot be read, or are not as they were written."""

    def statement(self, words: Words) -> str:
        states = [
            words("trials_in_state", number=number, state=words.named("state", state))
            for state in ENDED_BADLY
            if (number := self.numbers[f"num_{state}"])
        ]
        key = "unfinished" if self.num_done else "none_finished"
        return self.fill(words, key, states=words.listed(states))


@dataclass(frozen=True, kw_only=True)
class Undecided(Finding):
    """Comparisons that could not be decided, and what it would take."""

    kind = "undecided"
    section = "method"

    num_open: int
    num_tested: int
    num_noise: int
    num_single: int
    num_diverged: int
    num_rates: int
    num_failed: int
    """How many are open for each cause; together they are all."""
    most_seeds: int | None
    """Of the open comparisons of what was learned."""
    seeds_needed: int | None
    """The fewest that would settle one of them."""

    def statement(self, words: Words) -> str:
        causes = [
            words(f"open_{cause}", number=number)
            for cause in CAUSES
            if (number := self.numbers[f"num_{cause}"])
        ]
        text = self.fill(words, "undecided", causes=words("list_semicolon").join(causes))
        seeds = self.most_seeds
        if seeds != 1:
            return text
        too_few = words("undecidable", seeds=num_seeds(seeds, words), fewest=FEWEST_SEEDS)
        return words.sentences(text, too_few)


@dataclass(frozen=True, kw_only=True)
class RanAs(Finding):
    """A cell that ran with fewer samples a batch than it asked for, since there are no more."""

    kind = text = "ran_as"
    section = "method"

    asked: int
    ran: int

    def phrases(self, words: Words) -> dict[str, object]:
        same = words.listed(self.cells[1:])
        same_text = words("ran_as_same", others=same) if same else ""
        return super().phrases(words) | {"same": same_text}


def unfinished_findings(evidence: Evidence) -> Iterator[Finding]:
    """One finding, unless every trial ended well."""
    states = [trial.state for trial in evidence.trials]
    done = sum(state in ENDED_WELL for state in states)
    planned = len(states) + evidence.num_damaged
    if done < planned:
        yield Unfinished(
            subject="trials",
            cells=(),
            num_done=done,
            num_planned=planned,
            num_failed=states.count("failed"),
            num_interrupted=states.count("interrupted"),
            num_running=states.count("running"),
            num_pending=states.count("pending"),
            num_damaged=evidence.num_damaged,
            n=done,
        )


def undecided_findings(others: Sequence[Finding]) -> Iterator[Finding]:
    """One finding, if a comparison among the others was not decided."""
    tested = [finding for finding in others if finding.test and finding.verdict is not None]
    undecided = [finding for finding in tested if finding.verdict == "cannot tell"]
    if not undecided:
        return
    effects = [finding for finding in undecided if isinstance(finding, Effect)]
    needed = [effect.seeds_needed for effect in effects if effect.seeds_needed is not None]
    yield Undecided(
        subject="comparisons",
        cells=tuple(dict.fromkeys(finding.cells[1] for finding in undecided)),
        num_open=len(undecided),
        num_tested=len(tested),
        num_noise=_count(undecided, "noise"),
        num_single=_count(undecided, "single"),
        num_diverged=_count(undecided, "diverged"),
        num_rates=_count(undecided, "rates"),
        num_failed=_count(undecided, "failed"),
        most_seeds=max((effect.n for effect in effects), default=None),
        seeds_needed=min(needed, default=None),
        n=len(undecided),
        verdict="cannot tell",
    )


def _count(undecided: Sequence[Finding], cause: Cause) -> int:
    return sum(finding.open_because == cause for finding in undecided)


def ran_as_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of every cell whose batch is larger than the data; cells that are the same by it are named."""
    if evidence.study.script is not None:
        return  # which chooses its batches itself
    meanings = {}
    for cell in evidence.cells:
        ran = evidence.level_that_ran(cell, "batch_size")
        meanings[cell.id] = cell.settings.meaning | {"batch_size": ran}
    for cell in evidence.cells:
        asked, ran = cell.settings.batch_size, meanings[cell.id]["batch_size"]
        if ran != asked:
            others = [one for one in meanings if one != cell.id]
            same = (one for one in others if meanings[one] == meanings[cell.id])
            num_trials = sum(trial.cell == cell.id for trial in evidence.trials)
            yield RanAs(
                subject="batch_size",
                factor="batch_size",
                cells=(cell.id, *same),
                asked=asked,
                ran=ran,
                n=num_trials,
            )
