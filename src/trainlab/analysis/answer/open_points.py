"""What could not be told, and the command that would settle it."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from trainlab.analysis.answer.learned import size_text
from trainlab.analysis.answer.sentence import OpenPoint
from trainlab.analysis.cost import CostRatio
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, num_seeds
from trainlab.analysis.findings.effects import Effect
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.names import joined, names_of, section_of
from trainlab.record.trial_record import TrialRecord
from trainlab.stats.verdict import FEWEST_SEEDS
from trainlab.words import Words

ENOUGH_TO_TEST = 3
SEED_OPTIONS = ("seeds", "seed", "until-decided", "max-seeds")
FLAGS = ("--until-decided",)
WATCH = "watch"
MOST_SEEDS = 200
"""More than anybody trains: such a point is left open."""


def open_points(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[OpenPoint]:
    """Trials that are missing; then of each factor what its seeds and processes could not tell."""
    yield from _unfinished(evidence, words)
    if not evidence.is_complete:
        return
    for metric in compared_metrics(evidence)[:1]:
        yield from _learning(evidence, metric, findings, words)
    yield from _cost(evidence, findings, words)


def _unfinished(evidence: Evidence, words: Words) -> Iterator[OpenPoint]:
    num_open = sum(
        trial.state in ("pending", "running", "interrupted") for trial in evidence.trials
    )
    if num_open:
        text = words("open_unfinished", some=num_open, all=len(evidence.trials))
        whole = _minutes(evidence, 1.0)
        left = None if whole is None else whole * num_open / len(evidence.trials)
        command = f"trainlab resume {shlex.quote(evidence.path)}" if evidence.path else None
        yield OpenPoint(text, "answer", command, left)


def _learning(
    evidence: Evidence, metric: str, findings: Sequence[Finding], words: Words
) -> Iterator[OpenPoint]:
    undecided: dict[str, list[Effect]] = {}
    for one in findings:
        # What more seeds cannot decide, since trials diverge or fail, the answer says as such.
        is_open = one.open_because in ("noise", "single")
        if isinstance(one, Effect) and one.subject == metric and is_open:
            undecided.setdefault(one.factor or "", []).append(one)
    for factor, effects in _by_prospect(undecided):
        names = [_pair(evidence, one, words) for one in effects]
        seeds = min(effect.n for effect in effects)
        detectable = [one.detectable for one in effects if one.detectable is not None]
        parts = {
            "metric": words.metric(metric),
            "pairs": words("list_semicolon").join(dict.fromkeys(names)),
            "seeds": num_seeds(seeds, words),
        }
        if seeds < FEWEST_SEEDS:
            text = words("open_one_seed", **parts)
            share = ENOUGH_TO_TEST / max(1, len(evidence.study.seeds))
            yield OpenPoint(
                text,
                section_of(factor),
                command_with(evidence.record.command, f"--seeds {ENOUGH_TO_TEST}", SEED_OPTIONS),
                _minutes(evidence, share, kind="learn"),
            )
            continue
        if detectable:
            size = size_text(metric, max(detectable), words)
            text = words("open_learning", **parts, size=size)
        else:
            text = words("open_learning_bare", **parts)
        needed = max(one.seeds_needed or MOST_SEEDS + 1 for one in effects)
        if needed > MOST_SEEDS:
            yield OpenPoint(words.sentences(text, words("open_too_many")), section_of(factor))
            continue
        share = needed / max(1, len(evidence.study.seeds))
        would_do = words("open_seeds", number=needed)
        yield OpenPoint(
            words.sentences(text, would_do),
            section_of(factor),
            command_with(evidence.record.command, f"--seeds {needed}", SEED_OPTIONS),
            _minutes(evidence, share, kind="learn"),
        )


def _by_prospect(undecided: Mapping[str, list[Effect]]) -> Iterator[tuple[str, list[Effect]]]:
    """Of each factor the comparisons that more seeds would settle apart from those that none would."""
    for factor, effects in undecided.items():
        hopeful = [one for one in effects if (one.seeds_needed or MOST_SEEDS + 1) <= MOST_SEEDS]
        hopeless = [one for one in effects if one not in hopeful]
        yield from ((factor, some) for some in (hopeful, hopeless) if some)


def _cost(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Iterator[OpenPoint]:
    undecided: dict[tuple[str, str], list[CostRatio]] = {}
    for one in findings:
        if isinstance(one, CostRatio) and one.verdict == "cannot tell":
            undecided.setdefault((one.factor or "", one.mode), []).append(one)
    for (factor, mode), ratios in undecided.items():
        names = (_pair(evidence, one, words) for one in ratios)
        pairs = words("list_semicolon").join(dict.fromkeys(names))
        text = words(f"open_cost_{mode}", pairs=pairs)
        known = [one.processes_needed for one in ratios if one.processes_needed is not None]
        if len(known) < len(ratios) or evidence.study.cost is None:
            yield OpenPoint(text, section_of(factor))
            continue
        needed = max(known)
        yield OpenPoint(
            words.sentences(text, words("open_processes", number=needed)),
            section_of(factor),
            command_with(
                evidence.record.command, f"--processes {needed}", ("processes", "max-processes")
            ),
            _minutes(evidence, needed / evidence.study.cost.processes, kind="cost"),
        )


def _pair(evidence: Evidence, one: Effect | CostRatio, words: Words) -> str:
    pair = joined(names_of(one, evidence.cells, words), words)
    at = one.shared_text(words) if one.levels != (None, None) else ""
    return f"{pair}{at}"


def command_with(command: str, added: str = "", instead_of: Sequence[str] = ()) -> str | None:
    """The command that made a run, with an option in place of others; None where it was no command."""
    if not command.startswith("trainlab "):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    # What follows -- is the script's own, and so is --seed.
    end = words.index("--") if "--" in words else len(words)
    replaced = {f"--{option}" for option in instead_of if words[1] != WATCH or option != "seed"}
    # A longer run goes into a folder of its own.
    replaced |= {"--out"} if added else set()
    own = _without(words[:end], replaced)
    return shlex.join([*own, *added.split(), *words[end:]])


def _without(words: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command but for these options and their values."""
    is_value = False
    for word in words:
        option, equals, _ = word.partition("=")
        if not is_value and option not in options:
            yield word
        is_value = not is_value and word in options and not equals and option not in FLAGS


def _minutes(evidence: Evidence, times: float, kind: str = "") -> float | None:
    """What a whole run takes if its trials of a kind come so many times as often, those that have not
    ended taken to be like the others; None where none has ended by itself."""
    total_s = 0.0
    for one in ("learn", "cost"):
        planned = [trial for trial in evidence.trials if trial.kind == one]
        timed = [
            trial
            for trial in planned
            if trial.started and trial.ended and trial.state != "interrupted"
        ]
        seconds = busy_s(timed) * len(planned) / max(1, len(timed))
        total_s += seconds * (times if kind in ("", one) else 1.0)
    return total_s / 60 if total_s else None


def busy_s(trials: Iterable[TrialRecord]) -> float:
    """How long at least one of the trials ran; those of a bench run at the same time."""
    spans = sorted(
        (datetime.fromisoformat(trial.started), datetime.fromisoformat(trial.ended))
        for trial in trials
        if trial.started is not None and trial.ended is not None
    )
    total_s, latest = 0.0, None
    for start, end in spans:
        begin = start if latest is None else max(start, latest)
        total_s += max(0.0, (end - begin).total_seconds())
        latest = end if latest is None else max(end, latest)
    return total_s
