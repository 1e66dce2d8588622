"""All findings of a run, the most telling first."""

from collections.abc import Iterator

from trainlab.analyse.evidence import ENDED_WELL, Evidence
from trainlab.analyse.findings.cost import cost_findings
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.learning import learn_findings
from trainlab.analyse.findings.probes import probe_findings


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """What the study shows, and at the end what it cannot tell."""
    found = [
        *_unfinished(evidence),
        *learn_findings(evidence),
        *probe_findings(evidence.probed),
        *cost_findings(evidence),
    ]
    return (*found, *_undecided(found))


def _unfinished(evidence: Evidence) -> Iterator[Finding]:
    states = [trial.state for trial in evidence.trials]
    done = sum(state in ENDED_WELL for state in states)
    if done < len(states):
        yield Finding(
            kind="unfinished",
            subject="trials",
            cells=(),
            numbers={
                "num_done": done,
                "num_planned": len(states),
                "num_failed": states.count("failed"),
                "num_interrupted": states.count("interrupted"),
                "num_pending": states.count("pending") + states.count("running"),
            },
            n=done,
        )


def _undecided(found: list[Finding]) -> Iterator[Finding]:
    """How many comparisons remain open, and how many seeds would settle those that can be settled."""
    tested = [one for one in found if one.verdict is not None]
    open_ones = [one for one in tested if one.verdict == "cannot tell"]
    if not open_ones:
        return
    learn = [one for one in open_ones if one.kind in ("effect", "no_reset")]
    needed = [_whole(one.numbers.get("seeds_needed")) for one in learn]
    fewest = [_whole(one.numbers.get("fewest_seeds")) for one in learn]
    yield Finding(
        kind="undecided",
        subject="comparisons",
        cells=tuple(dict.fromkeys(one.cells[1] for one in open_ones)),
        numbers={
            "num_open": len(open_ones),
            "num_tested": len(tested),
            "seeds": max((one.n for one in learn), default=None),
            "fewest_seeds": max((n for n in fewest if n is not None), default=None),
            "seeds_needed": min((n for n in needed if n is not None), default=None),
        },
        n=len(open_ones),
        verdict="cannot tell",
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
