"""The gate: whether a run is slower, or learns worse, than an earlier run of the same thing.

"Slower" needs a lower bound beyond the margin, "not slower" an upper bound within it; all else is "cannot
tell", with what would tell. Over all comparisons of a gate, at most 5% of those without any change beyond
the margin fail.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from statistics import fmean
from typing import Literal

import numpy as np
from scipy import special

from trainlab.analysis.answer import SEED_OPTIONS, command_with, size_text
from trainlab.analysis.evidence import Confound, Evidence, run_confounds, trial_confounds
from trainlab.analysis.measurement import (
    MODES,
    OTHERS_LIMIT_CORES,
    STOLEN_LIMIT_CORES,
    Measurement,
    Reason,
)
from trainlab.analysis.metrics import resolution_of
from trainlab.errors import RecordError, SpecError
from trainlab.record.study_record import Environment
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.base import did_you_mean
from trainlab.stats.contrasts import (
    LEVEL,
    Critical,
    Design,
    Family,
    Floats,
    compare_cells,
    critical_of,
    pair_rows,
    rows_of,
    table_of,
)
from trainlab.stats.cost_ratio import Change, Judgement, Levels, assumed, welch
from trainlab.stats.means import Interval, ratio_of_logs
from trainlab.stats.verdict import Failures, are_identical
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference, metric_value

# One comparison of a gate: a figure of a setting, before and now.

COST_SUBJECT = "step_ms"
USUAL_STD = 0.03
"""Of the log time of a process, for planning where two processes are not there to show it."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One figure of one cell in both runs."""

    cell: str
    subject: str
    """`train/step_ms`, `inference/step_ms`, or a metric."""
    baseline: float | None
    """Geometric mean over processes for a time, mean over the seeds of both for a metric; None without."""
    run: float | None
    change: float | None
    """How many times as long for a time, run less baseline for a metric."""
    margin: float
    """A share of the time, or an amount of the metric."""
    num_baseline: int
    """Processes, or seeds."""
    num_run: int
    interval: Interval | None = None
    """Of the change: each end is a bound on its side alone, the one that decides. None where too few show
    how much they vary."""
    verdict: Judgement = "cannot tell"
    needed: int | None = None
    """Processes, or seeds, of each run that would decide if the change is as it was seen; None: decided, or
    it cannot be said."""
    needed_unchanged: int | None = None
    """The same if nothing has changed."""
    has_diverged: bool = False
    """Of a metric: whether a larger share of seeds diverged in one run than in the other, which no number
    of seeds makes up for."""

    @property
    def is_cost(self) -> bool:
        """Whether it is the time of a step; otherwise a metric."""
        return self.subject.endswith(f"/{COST_SUBJECT}")


@dataclass(frozen=True)
class Disturbance:
    """Something else that ran while a run was timed: its times may be too long for that reason alone."""

    run: str
    """The run folder."""
    reason: Reason
    cores: float


# The time of a step in two runs, setting by setting.


def cost_checks(
    run: Evidence, baseline: Evidence, cells: Sequence[str], mode: str, margin: float, number: int
) -> Iterator[Check]:
    """One per setting; `number` is that of all comparisons of the gate."""
    levels = Levels(LEVEL / number, together=number)
    for cell in cells:
        measured = baseline.measurement(cell, mode), run.measurement(cell, mode)
        yield _check(cell, f"{mode}/{COST_SUBJECT}", *measured, margin, levels)


def disturbances(evidence: Evidence, cells: Sequence[str], mode: str) -> Iterator[Disturbance]:
    """What else the machine did while these cells were timed, where it was too much to be passed over."""
    measured = [m for cell in cells if (m := evidence.measurement(cell, mode)) is not None]
    loads = [cost.load for one in measured for cost in one.costs]
    stolen = max((load.stolen_cores for load in loads), default=0.0)
    others = max((load.others_cores for load in loads), default=0.0)
    if stolen > STOLEN_LIMIT_CORES:
        yield Disturbance(evidence.path, "stolen", stolen)
    if others > OTHERS_LIMIT_CORES:
        yield Disturbance(evidence.path, "others_busy", others)


def _check(
    cell: str,
    subject: str,
    baseline: Measurement | None,
    run: Measurement | None,
    margin: float,
    levels: Levels,
) -> Check:
    before, after = _logs(baseline), _logs(run)
    limit = math.log1p(margin)
    value = None if not before or not after else fmean(after) - fmean(before)
    plain = Check(
        cell=cell,
        subject=subject,
        baseline=math.exp(fmean(before)) if before else None,
        run=math.exp(fmean(after)) if after else None,
        change=None if value is None else math.exp(value),
        margin=margin,
        num_baseline=len(before),
        num_run=len(after),
    )
    change = welch(before, after)
    if change is None:
        # What would be decided at the noise that is usual; nothing is known of this machine's.
        usual = assumed(USUAL_STD).number_for(0.0, limit, levels)
        return replace(plain, needed_unchanged=usual)
    bounds = Interval(change.low(levels.low), change.high(levels.high))
    verdict = change.judged(limit, levels)
    is_open = verdict == "cannot tell"
    return replace(
        plain,
        interval=ratio_of_logs(change.value, bounds, len(after)).interval,
        verdict=verdict,
        needed=change.number_for(change.value, limit, levels) if is_open else None,
        needed_unchanged=change.number_for(0.0, limit, levels) if is_open else None,
    )


def _logs(measurement: Measurement | None) -> list[float]:
    """The log of each process's step; none where it was not measured."""
    return [] if measurement is None else [math.log(ms) for ms in measurement.process_ms]


# Whether two runs are of the same thing on the same machine, so that a change is that of the code.

TrialPair = tuple[TrialRecord, TrialRecord]
"""A trial of the run and the same of the baseline."""
SAME_RESOLVED = ("device", "device_name", "threads", "batch_size", "accumulate")
"""What settings became that must be the same for times to be compared."""
NOT_ENDED = ("pending", "running", "interrupted")
NOT_COMPARED = "times of two machines are not compared"
MOST_NAMED = 5


@dataclass(frozen=True)
class CellsOfRuns:
    """Ids of cells, in the order asked."""

    both: tuple[str, ...]
    only_run: tuple[str, ...]
    only_baseline: tuple[str, ...]


def check_finished(evidence: Evidence) -> None:
    """RecordError where trials are still to come."""
    if any(trial.state in NOT_ENDED for trial in evidence.trials):
        raise RecordError(
            f"{evidence.path}: is not finished; go on with `trainlab resume {evidence.path}`"
        )


def shared_cells(run: Evidence, baseline: Evidence) -> CellsOfRuns:
    """RecordError where the runs are of different workloads or have no cell in common."""
    ours, theirs = run.study.workload, baseline.study.workload
    # The same file may lie elsewhere, in a checkout of the earlier code.
    if PurePath(ours).name != PurePath(theirs).name:
        raise RecordError(
            f"{run.path}: is about {ours}, the baseline about {theirs}; "
            "compare runs of one workload"
        )
    of_run, of_baseline = ([cell.id for cell in one.cells] for one in (run, baseline))
    both = tuple(cell for cell in of_baseline if cell in of_run)
    if not both:
        raise RecordError(
            f"{run.path}: has no setting in common with the baseline: {_named(of_run)} against "
            f"{_named(of_baseline)}; run both with the same settings"
        )
    return CellsOfRuns(
        both,
        only_run=tuple(cell for cell in of_run if cell not in both),
        only_baseline=tuple(cell for cell in of_baseline if cell not in both),
    )


def mode_of(run: Evidence, baseline: Evidence, asked: str | None) -> str:
    """The mode whose step is compared: training, unless inference is asked for or all there is."""
    if asked is not None and asked not in MODES:
        raise SpecError([f"mode: got {asked!r}, must be one of {', '.join(MODES)}"])
    modes = MODES if asked is None else (asked,)
    for mode in modes:
        if run.measured_in(mode) and baseline.measured_in(mode):
            return mode
    lacking = next(
        (one for one in (run, baseline) if not any(one.measured_in(mode) for mode in modes)), run
    )
    what = "has no timed step" if asked is None else f"has no timed step in mode {asked}"
    measure = "profile" if lacking.study.script is None else "watch … --profile --no-learn"
    raise RecordError(
        f"{lacking.path}: {what}; measure it with `trainlab {measure}`, or compare metrics alone "
        "with --worse"
    )


def check_same_machine(run: Evidence, baseline: Evidence, any_host: bool) -> None:
    """RecordError where times were measured on another machine, or on more or fewer CPUs of it."""
    ours, theirs = _machine(run), _machine(baseline)
    if ours.host != theirs.host and not any_host:
        raise RecordError(
            f"{run.path}: was measured on host {ours.host or '?'}, the baseline on "
            f"{theirs.host or '?'}; {NOT_COMPARED}; if it is one machine under two names, as a "
            "container's, add --any-host"
        )
    for what, a, b in (
        ("CPU", ours.cpu, theirs.cpu),
        ("GPU", _gpus(ours), _gpus(theirs)),
        ("usable vCPUs", ours.num_vcpus_usable, theirs.num_vcpus_usable),
    ):
        if a != b:
            raise RecordError(
                f"{run.path}: was measured with {what} {a}, the baseline with {b}; {NOT_COMPARED}; "
                "measure both on one"
            )


def check_same_settings(run: Evidence, pairs: Iterable[TrialPair]) -> None:
    """RecordError where trials of the same cell were asked for otherwise, or ran elsewhere."""
    for ours, theirs in pairs:
        found = [
            (one.what, *("none" if value is None else value for value in (one.first, one.second)))
            for one in trial_confounds(ours, theirs, frozenset())
            if _is_asked(one.what, ours, theirs)
        ]
        if _weights(ours) != _weights(theirs):
            found.append(("weights", _weights(ours), _weights(theirs)))
        for name, first, second in found[:1]:
            raise RecordError(
                f"{run.path}: {ours.cell}: {name} is {first}, in the baseline {second}; "
                "run both with the same settings"
            )


def other_differences(
    run: Evidence, baseline: Evidence, pairs: Iterable[TrialPair]
) -> tuple[Confound, ...]:
    """Whatever else differs, the baseline first: the code, what settings became, packages, commits."""
    found = {
        str(one): one
        for ours, theirs in pairs
        for one in trial_confounds(theirs, ours, frozenset())
    }
    return (*found.values(), *run_confounds(_machine(baseline), _machine(run)))


def trial_pairs(
    run: Evidence, baseline: Evidence, cells: Sequence[str], mode: str | None, learn: bool
) -> list[TrialPair]:
    """Of every cell, of each kind that is compared, a trial that ended well of both runs."""
    pairs = []
    for cell in cells:
        for find in (_timed if mode else None, _learned if learn else None):
            both = () if find is None else [find(one, cell, mode or "") for one in (run, baseline)]
            done = [trial for trial in both if trial is not None]
            if len(done) == 2:
                pairs.append((done[0], done[1]))
    return pairs


def _timed(evidence: Evidence, cell: str, mode: str) -> TrialRecord | None:
    measurement = evidence.measurement(cell, mode)
    return None if measurement is None else measurement.trial


def _learned(evidence: Evidence, cell: str, mode: str) -> TrialRecord | None:
    trials = (learned.trial for learned in evidence.learned.get(cell, {}).values())
    return next((trial for trial in trials if trial.state == "done"), None)


def _weights(trial: TrialRecord) -> str:
    return "untrained" if trial.weights_of is None else "trained"


def _is_asked(name: str, ours: TrialRecord, theirs: TrialRecord) -> bool:
    """Whether what differs is part of the question: a setting, the data, or where it ran."""
    if name.startswith("data.") or name in SAME_RESOLVED:
        return True
    return ours.settings.get(name) != theirs.settings.get(name)


def _machine(evidence: Evidence) -> Environment:
    """The machine of the timed trials; where there are none, the run's first."""
    names = (one.trial.environment or "" for one in evidence.measured)
    known = (evidence.environments[name] for name in names if name in evidence.environments)
    return next(known, evidence.environment)


def _gpus(environment: Environment) -> str:
    """With what changes their speed."""
    limits = (
        f"{gpu.name} ({gpu.memory_gib} GiB, {gpu.power_limit_w} W)" for gpu in environment.gpus
    )
    return ", ".join(limits) or "none"


def _named(cells: Sequence[str]) -> str:
    more = ["…"] if len(cells) > MOST_NAMED else []
    return ", ".join([*cells[:MOST_NAMED], *more])


# The comparisons of a gate in words, and what would decide those that are open.

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


# What a gate says: what follows from all of its comparisons, as a value and in words.

GateVerdict = Literal["pass", "fail", "cannot tell"]
EXIT_CODES: dict[GateVerdict, int] = {"pass": 0, "fail": 1, "cannot tell": 3}
LEADS: dict[GateVerdict, str] = {
    "pass": "gate_pass",
    "fail": "gate_fail",
    "cannot tell": "gate_cannot_tell",
}
ORDER: tuple[Judgement, ...] = ("worse", "cannot tell", "not worse")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A run held against an earlier one of the same thing."""

    run: str
    """The run folder."""
    baseline: str
    """The run folder it is held against."""
    command: str
    """What made the run."""
    mode: str | None
    """Of the step that is compared; None where only metrics are."""
    checks: tuple[Check, ...]
    """One per setting and figure."""
    only_run: tuple[str, ...]
    """Settings that the baseline does not have: they are not compared."""
    only_baseline: tuple[str, ...]
    differs: tuple[Confound, ...]
    """What else differs, baseline first: code, packages, commits. The first places to look for a cause."""

    disturbed: tuple[Disturbance, ...] = ()
    """What else ran while a run was timed."""
    num_failed: int = 0
    """Trials of the run that failed: those that ended are compared."""
    left_out: tuple[str, ...] = ()
    """Records of either run that are damaged, as error lines."""

    @property
    def verdict(self) -> GateVerdict:
        """`fail` where anything is surely worse, `pass` where all is surely not."""
        found = {check.verdict for check in self.checks}
        if "worse" in found:
            return "fail"
        return "cannot tell" if "cannot tell" in found else "pass"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail, 3 for cannot tell."""
        return EXIT_CODES[self.verdict]

    @property
    def slowest(self) -> Check | None:
        """The setting whose step became slowest beside the baseline's; None where none was compared."""
        known = [one for one in self.checks if one.is_cost and one.change is not None]
        return max(known, key=lambda one: one.change or 0.0, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as long a step takes, in the setting that became slowest."""
        return None if self.slowest is None else self.slowest.change

    @property
    def interval(self) -> Interval | None:
        """The bounds of that ratio."""
        return None if self.slowest is None else self.slowest.interval

    @property
    def processes_needed(self) -> int | None:
        """Of each run, to decide every time that is open, if ratios are as they were seen; None where
        nothing is open or it cannot be said."""
        return most_needed([one.needed for one in self._open_times])

    @property
    def seeds_needed(self) -> int | None:
        """The same for the seeds that decide metrics."""
        return most_needed([one.needed for one in self._open_metrics])

    def sentences(self, lang: str = "en") -> list[str]:
        """The verdict first, then comparison by comparison, then what would tell where it is open."""
        words = Words(lang)
        lead = [self._lead(words)] if len(self.checks) > 1 else []
        told = [self._named(one, words, "{}") for one in self._by_verdict]
        return [*lead, *told, *self._needs(words)]

    def commands(self) -> list[str]:
        """What to run, with the code of either run, where it is open; none where no command made it."""
        open_parts = (("processes", self._open_times), ("seeds", self._open_metrics))
        made = (command_for(self.command, option, part) for option, part in open_parts if part)
        return [command for command in made if command is not None]

    def markdown(self, lang: str = "en") -> str:
        """One paragraph, for a comment on a pull request."""
        words = Words(lang)
        lead, *told = [
            *([self._lead(words)] if len(self.checks) > 1 else []),
            *(self._named(one, words, "`{}`") for one in self._by_verdict),
        ]
        again = [words("gate_again", command=f"`{one}`") for one in self.commands()]
        return words.sentences(f"**{lead}**", *told, *self._needs(words), *again)

    def differences(self, lang: str = "en") -> str:
        """What else differs between the runs, in a sentence; empty where nothing does."""
        return differences_text(self.differs, Words(lang))

    @property
    def _open_times(self) -> list[Check]:
        return [one for one in self.checks if one.is_cost and one.verdict == "cannot tell"]

    @property
    def _open_metrics(self) -> list[Check]:
        return [one for one in self.checks if not one.is_cost and one.verdict == "cannot tell"]

    @property
    def _by_verdict(self) -> list[Check]:
        return sorted(self.checks, key=lambda one: ORDER.index(one.verdict))

    def _lead(self, words: Words) -> str:
        wanted = {"pass": "not worse", "fail": "worse", "cannot tell": "cannot tell"}[self.verdict]
        some = sum(one.verdict == wanted for one in self.checks)
        return words(LEADS[self.verdict], some=some, all=len(self.checks))

    def _named(self, check: Check, words: Words, name: str) -> str:
        """A sentence, after the setting it is about where there are several."""
        text = check_sentence(check, words)
        is_alone = len({one.cell for one in self.checks}) == 1
        return text if is_alone else f"{name.format(check.cell)}{words('colon')}{text}"

    def _needs(self, words: Words) -> list[str]:
        parts = (("processes", self._open_times), ("seeds", self._open_metrics))
        return [text for kind, part in parts if (text := needs_sentence(kind, part, words))]


# The final metrics of the learn trials of two runs, setting by setting, paired by seed.

BySeed = Mapping[int, float]


def metric_names(run: Evidence, baseline: Evidence, asked: Iterable[str]) -> list[str]:
    """The metrics asked for; an error that names those there are, where a run does not have one."""
    names = list(asked)
    for evidence in (run, baseline) if names else ():
        if not evidence.metrics:
            raise RecordError(
                f"{evidence.path}: has no learn trial that ended well; train with `trainlab run`"
            )
        for name in names:
            if name not in evidence.metrics:
                known = ", ".join(evidence.metrics)
                near = did_you_mean(name, evidence.metrics)
                raise SpecError([f"worse: got {name!r}, must be one of {known}{near}"])
    return names


def metric_checks(
    run: Evidence, baseline: Evidence, cells: Sequence[str], metric: str, margin: float, number: int
) -> Iterator[Check]:
    """One per setting; `number` is that of all comparisons of the gate."""
    sign = 1.0 if run.study.is_better_lower(metric) else -1.0
    before = {cell: baseline.values(cell, metric) for cell in cells}
    after = {cell: run.values(cell, metric) for cell in cells}
    changes, levels = _changes(before, after, cells, sign, resolution_of(run, metric), number)
    for cell in cells:
        plain = _plain(cell, metric, before[cell], after[cell], margin)
        yield _judged(plain, changes.get(cell), sign, levels)


def _plain(cell: str, metric: str, before: BySeed, after: BySeed, margin: float) -> Check:
    """What was seen, not yet judged but where every seed gave the same in both runs."""
    seeds = _shared(before, after)
    pair = [[values[seed] for seed in seeds] for values in (before, after)]
    base, now = (fmean(values) if values else None for values in pair)
    # Seeds that diverged in one run alone are no values, and must not be passed over.
    has_diverged = Failures.of(before, after).differ
    is_same = are_identical(np.array(pair)) and not has_diverged
    return Check(
        cell=cell,
        subject=metric,
        baseline=base,
        run=now,
        change=None if base is None or now is None else now - base,
        margin=margin,
        num_baseline=len(before),
        num_run=len(after),
        has_diverged=has_diverged,
        interval=Interval(0.0, 0.0) if is_same else None,
        verdict="not worse" if is_same else "cannot tell",
    )


def _judged(plain: Check, change: Change | None, sign: float, levels: Levels) -> Check:
    if change is None or plain.verdict == "not worse":
        return plain
    margin = plain.margin
    ends = sorted((sign * change.low(levels.low), sign * change.high(levels.high)))
    verdict = change.judged(margin, levels)
    if verdict == "not worse" and plain.has_diverged:
        verdict = "cannot tell"
    is_open = verdict == "cannot tell" and not plain.has_diverged
    return replace(
        plain,
        interval=Interval(*ends),
        verdict=verdict,
        needed=change.number_for(change.value, margin, levels) if is_open else None,
        needed_unchanged=change.number_for(0.0, margin, levels) if is_open else None,
    )


def _changes(
    before: Mapping[str, BySeed],
    after: Mapping[str, BySeed],
    cells: Sequence[str],
    sign: float,
    resolution: float,
    number: int,
) -> tuple[dict[str, Change], Levels]:
    """How much worse each cell became, by the sign that makes it so, and the levels of their bounds."""
    both = {f"before/{cell}": values for cell, values in before.items()}
    both |= {f"after/{cell}": values for cell, values in after.items()}
    rows, table = table_of(both)
    known = [cell for cell in cells if {f"before/{cell}", f"after/{cell}"} <= {*rows}]
    if not known:
        return {}, Levels(LEVEL / number)
    pairs = [(rows.index(f"before/{cell}"), rows.index(f"after/{cell}")) for cell in known]
    family = compare_cells(sign * table, pair_rows(pairs, len(rows)), resolution=resolution)
    changes = {
        cell: change
        for place, cell in enumerate(known)
        if (change := _change(family, place, len(_shared(before[cell], after[cell])))) is not None
    }
    if not changes:
        return {}, Levels(LEVEL / number)
    low = _level(family.critical, LEVEL * len(cells) / number)
    return changes, Levels(low, _level_of_one(table, pairs), number)


def _change(family: Family, place: int, num_seeds: int) -> Change | None:
    """None where fewer than two seeds are in both runs."""
    found = family.estimates
    value, error, freedom = (
        float(entries[place]) for entries in (found.value, found.error, found.degrees_of_freedom)
    )
    if math.isnan(value):
        return None
    return Change(
        value=value,
        error=error,
        degrees_of_freedom=freedom,
        single_error=error * math.sqrt(num_seeds),
        freedom_each=freedom / (num_seeds - 1),
    )


def _level(critical: Critical, share: float) -> float:
    """Of each bound, so that in this share of cases one or more of the family are wrong."""
    score = float(np.quantile(critical.largest_above, 1 - share))
    return float(special.ndtr(-score))


def _level_of_one(table: Floats, pairs: Sequence[tuple[int, int]]) -> float:
    """Of a bound that is decided alone, beside the others that tell how much values vary: the strictest of
    pairs that have values of other seeds."""
    present = tuple(map(tuple, np.isfinite(table).tolist()))
    shapes = {(present[a], present[b]): (a, b) for a, b in pairs}
    designs = (Design(rows_of(pair_rows([pair], len(table))), present) for pair in shapes.values())
    return min(LEVEL, *(_level(critical_of(one), LEVEL) for one in designs))


def _shared(before: BySeed, after: BySeed) -> list[int]:
    """Seeds that ended with a finite value in both."""
    both = sorted(before.keys() & after.keys())
    return [seed for seed in both if math.isfinite(before[seed]) and math.isfinite(after[seed])]


DEFAULT_SLOWER = 0.05
"""The margin on the time of a step where nothing else is asked about."""


def gate_of(
    run: Evidence,
    baseline: Evidence,
    *,
    slower: float | None = None,
    worse: Mapping[str, float] | None = None,
    mode: str | None = None,
    any_host: bool = False,
) -> Gate:
    """RecordError where the runs are not of the same thing; SpecError where a margin is none.

    The time of a step is compared where `slower` is given or `worse` is not.
    """
    worse = worse or {}
    margin = DEFAULT_SLOWER if slower is None and not worse else slower
    _check_margins(margin, worse)
    check_finished(run)
    check_finished(baseline)
    cells = shared_cells(run, baseline)
    metrics = metric_names(run, baseline, worse)
    measured = None if margin is None else mode_of(run, baseline, mode)
    pairs = trial_pairs(run, baseline, cells.both, measured, bool(metrics))
    check_same_settings(run, pairs)
    if measured is not None:
        check_same_machine(run, baseline, any_host)
    return Gate(
        run=run.path,
        baseline=baseline.path,
        command=run.record.command,
        mode=measured,
        checks=_checks(run, baseline, cells, margin, measured, {m: worse[m] for m in metrics}),
        only_run=cells.only_run,
        only_baseline=cells.only_baseline,
        differs=other_differences(run, baseline, pairs),
        disturbed=()
        if measured is None
        else tuple(
            one for side in (run, baseline) for one in disturbances(side, cells.both, measured)
        ),
        num_failed=sum(trial.state == "failed" for trial in run.trials),
        left_out=tuple(
            f"{one.path}: {lost.reason}" for one in (run, baseline) for lost in one.damaged
        ),
    )


def _checks(
    run: Evidence,
    baseline: Evidence,
    cells: CellsOfRuns,
    slower: float | None,
    mode: str | None,
    worse: Mapping[str, float],
) -> tuple[Check, ...]:
    number = len(cells.both) * ((mode is not None) + len(worse))
    checks: list[Check] = []
    if mode is not None and slower is not None:
        checks += cost_checks(run, baseline, cells.both, mode, slower, number)
    for metric, amount in worse.items():
        checks += metric_checks(run, baseline, cells.both, metric, amount, number)
    return tuple(checks)


def _check_margins(slower: float | None, worse: Mapping[str, float]) -> None:
    problems = []
    if slower is not None and not 0 < slower < 1:
        problems.append(
            f"slower: got {100 * slower:g}%, must be above 0% and below 100%, as 5% or 0.05"
        )
    problems += [
        f"worse: got {amount} for {metric}, must be above 0, as test/accuracy=0.01"
        for metric, amount in worse.items()
        if not 0 < amount < float("inf")
    ]
    if problems:
        raise SpecError(problems)
