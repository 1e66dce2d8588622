"""The gate: whether a run is slower, or learns worse, than an earlier run of the same thing.

"Slower" needs a lower bound beyond the margin, "not slower" an upper bound within it; all else is "cannot
tell", with what would tell. Over all comparisons of a gate, at most 5% of those without any change beyond
the margin fail.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import PurePath
from statistics import fmean
from typing import Literal

import numpy as np

from trainlab.analysis.answer import SEED_OPTIONS, command_with, size_text
from trainlab.analysis.comparison import TrialPair, trial_pairs
from trainlab.analysis.evidence import Confound, Evidence, run_confounds, trial_confounds
from trainlab.analysis.measurement import MODES, OTHERS_LIMIT_CORES, STOLEN_LIMIT_CORES, Reason
from trainlab.analysis.metrics import resolution_of
from trainlab.errors import RecordError, SpecError
from trainlab.record.study_record import Environment
from trainlab.spec.base import did_you_mean
from trainlab.stats import contrasts, special
from trainlab.stats.cost_ratio import Change, Judgement, Levels, assumed, welch
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Failures, are_identical
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference, metric_value

COST_SUBJECT = "step_ms"
USUAL_STD = 0.03
"""Of the log time of a process, for planning where two processes are not there to show it."""
DEFAULT_SLOWER = 0.05
"""The margin on the time of a step where nothing else is asked about."""


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
    """Of the change: each end is a bound on its side alone. None where too few show how much they vary."""
    verdict: Judgement = "cannot tell"
    needed: int | None = None
    """Processes, or seeds, of each run that would decide if the change is as seen; None where unknown."""
    needed_unchanged: int | None = None
    """The same if nothing has changed."""
    has_diverged: bool = False
    """Of a metric: whether more seeds diverged in one run than in the other; no others make up for it."""

    @property
    def is_cost(self) -> bool:
        """Whether it is the time of a step; otherwise a metric."""
        return self.subject.endswith(f"/{COST_SUBJECT}")

    def judged(
        self, change: Change, margin: float, levels: Levels, shown: Callable[[float], float]
    ) -> "Check":
        """With the verdict, its bounds, and what would decide it. The margin is in the unit of the test;
        `shown` turns a bound into that of the check."""
        ends = sorted(map(shown, (change.low(levels.low), change.high(levels.high))))
        verdict = change.judged(margin, levels)
        if self.has_diverged and verdict == "not worse":
            verdict = "cannot tell"
        plain = replace(self, interval=Interval(*ends), verdict=verdict)
        if verdict != "cannot tell" or self.has_diverged:
            return plain
        return replace(
            plain,
            needed=change.number_for(change.value, margin, levels),
            needed_unchanged=change.number_for(0.0, margin, levels),
        )


@dataclass(frozen=True)
class Disturbance:
    """Something else that ran while a run was timed: its times may be too long for that reason alone."""

    run: str
    """The run folder."""
    reason: Reason
    cores: float


def cost_checks(
    run: Evidence, baseline: Evidence, cells: Sequence[str], mode: str, margin: float, number: int
) -> Iterator[Check]:
    """The time of a step, one check per setting; `number` is that of all comparisons of the gate."""
    levels, limit = Levels(contrasts.LEVEL / number, together=number), math.log1p(margin)
    for cell in cells:
        measured = baseline.measurement(cell, mode), run.measurement(cell, mode)
        before, after = ([] if m is None else [*map(math.log, m.process_ms)] for m in measured)
        base, now = (math.exp(fmean(logs)) if logs else None for logs in (before, after))
        plain = Check(
            cell=cell,
            subject=f"{mode}/{COST_SUBJECT}",
            baseline=base,
            run=now,
            change=None if base is None or now is None else now / base,
            margin=margin,
            num_baseline=len(before),
            num_run=len(after),
        )
        if (change := welch(before, after)) is not None:
            yield plain.judged(change, limit, levels, math.exp)
        else:
            # What would be decided at the noise that is usual; nothing is known of this machine's.
            usual = assumed(USUAL_STD).number_for(0.0, limit, levels)
            yield replace(plain, needed_unchanged=usual)


def disturbances(evidence: Evidence, cells: Sequence[str], mode: str) -> Iterator[Disturbance]:
    """What else the machine did while these cells were timed, where it was too much to be passed over."""
    measured = [m for cell in cells if (m := evidence.measurement(cell, mode)) is not None]
    loads = [cost.load for one in measured for cost in one.costs]
    if (stolen := max((one.stolen_cores for one in loads), default=0.0)) > STOLEN_LIMIT_CORES:
        yield Disturbance(evidence.path, "stolen", stolen)
    if (others := max((one.others_cores for one in loads), default=0.0)) > OTHERS_LIMIT_CORES:
        yield Disturbance(evidence.path, "others_busy", others)


def metric_checks(
    run: Evidence, baseline: Evidence, cells: Sequence[str], metric: str, margin: float, number: int
) -> Iterator[Check]:
    """The final metric, paired by seed, one check per setting; `number` is that of all comparisons."""
    sign = 1.0 if run.study.is_better_lower(metric) else -1.0
    before = {cell: baseline.values(cell, metric) for cell in cells}
    after = {cell: run.values(cell, metric) for cell in cells}
    # Seeds that ended with a finite value in both.
    shared = {
        cell: [
            seed
            for seed in sorted(before[cell].keys() & after[cell].keys())
            if math.isfinite(before[cell][seed] + after[cell][seed])
        ]
        for cell in cells
    }
    changes, levels = _changes(before, after, shared, sign, resolution_of(run, metric), number)
    for cell, seeds in shared.items():
        pair = [[values[cell][seed] for seed in seeds] for values in (before, after)]
        base, now = (fmean(values) if values else None for values in pair)
        # Seeds that diverged in one run alone are no values, and must not be passed over.
        has_diverged = Failures.of(before[cell], after[cell]).differ
        plain = Check(
            cell=cell,
            subject=metric,
            baseline=base,
            run=now,
            change=None if base is None or now is None else now - base,
            margin=margin,
            num_baseline=len(before[cell]),
            num_run=len(after[cell]),
            has_diverged=has_diverged,
        )
        if are_identical(np.array(pair)) and not has_diverged:
            plain = replace(plain, interval=Interval(0.0, 0.0), verdict="not worse")
        elif cell in changes:
            plain = plain.judged(changes[cell], margin, levels, lambda bound: sign * bound)
        yield plain


def _changes(
    before: Mapping[str, Mapping[int, float]],
    after: Mapping[str, Mapping[int, float]],
    shared: Mapping[str, Sequence[int]],
    sign: float,
    resolution: float,
    number: int,
) -> tuple[dict[str, Change], Levels]:
    """How much worse each cell became, by the sign that makes it so, and the levels of their bounds; cells
    of which fewer than two seeds are in both runs are left out."""
    both = {f"before/{cell}": values for cell, values in before.items()}
    both |= {f"after/{cell}": values for cell, values in after.items()}
    rows, table = contrasts.table_of(both)
    known = [cell for cell, seeds in shared.items() if len(seeds) > 1]
    if not known:
        return {}, Levels(contrasts.LEVEL)
    pairs = [(rows.index(f"before/{cell}"), rows.index(f"after/{cell}")) for cell in known]
    weights = contrasts.pair_rows(pairs, len(rows))
    family = contrasts.compare_cells(sign * table, weights, resolution=resolution)
    changes, found = {}, family.estimates
    of_cells = np.stack([found.value, found.error, found.degrees_of_freedom], axis=1).tolist()
    for cell, (value, error, freedom) in zip(known, of_cells, strict=True):
        num_seeds = len(shared[cell])
        changes[cell] = Change(
            value=value,
            error=error,
            degrees_of_freedom=freedom,
            single_error=error * math.sqrt(num_seeds),
            freedom_each=freedom / (num_seeds - 1),
        )
    low = _level(family.critical, contrasts.LEVEL * len(before) / number)
    # Of a bound that is decided alone, beside the others that tell how much values vary: the strictest of
    # pairs that have values of other seeds.
    present = tuple(map(tuple, np.isfinite(table).tolist()))
    shapes = {(present[a], present[b]): (a, b) for a, b in pairs}
    alone = [
        contrasts.Design(contrasts.rows_of(contrasts.pair_rows([pair], len(table))), present)
        for pair in shapes.values()
    ]
    highs = (_level(contrasts.critical_of(one), contrasts.LEVEL) for one in alone)
    return changes, Levels(low, min(contrasts.LEVEL, *highs), number)


def _level(critical: contrasts.Critical, share: float) -> float:
    """Of each bound, so that in this share of cases one or more of the family are wrong."""
    return float(special.ndtr(-np.quantile(critical.largest_above, 1 - share)))


# Whether two runs are of the same thing on the same machine, so that a change is that of the code.

SAME_RESOLVED = ("device", "device_name", "threads", "batch_size", "accumulate")
"""What settings became that must be the same for times to be compared."""
NOT_ENDED = ("pending", "running", "interrupted")
NOT_COMPARED = "times of two machines are not compared"


def check_comparable(run: Evidence, baseline: Evidence, metrics: Iterable[str]) -> None:
    """RecordError where trials are still to come or the runs differ; SpecError for an unknown metric."""
    for one in (run, baseline):
        if any(trial.state in NOT_ENDED for trial in one.trials):
            remedy = f"go on with `trainlab resume {one.path}`"
            raise RecordError(f"{one.path}: is not finished; {remedy}")
    ours, theirs = run.study.workload, baseline.study.workload
    # The same file may lie elsewhere, in a checkout of the earlier code.
    if PurePath(ours).name != PurePath(theirs).name:
        raise RecordError(
            f"{run.path}: is about {ours}, the baseline about {theirs}; "
            "compare runs of one workload"
        )
    of_run, of_baseline = ([cell.id for cell in one.cells] for one in (run, baseline))
    if not {*of_run} & {*of_baseline}:
        raise RecordError(
            f"{run.path}: has no setting in common with the baseline: {', '.join(of_run)} against "
            f"{', '.join(of_baseline)}; run both with the same settings"
        )
    for one, name in product((run, baseline), metrics):
        if not one.metrics:
            what = "has no learn trial that ended well; train with `trainlab run`"
            raise RecordError(f"{one.path}: {what}")
        if name not in one.metrics:
            known = f"{', '.join(one.metrics)}{did_you_mean(name, one.metrics)}"
            raise SpecError([f"worse: got {name!r}, must be one of {known}"])
        if run.study.is_better_lower(name) is None:
            what = "but nothing says which way is better; run with --objective NAME:max or NAME:min"
            raise SpecError([f"worse: got {name!r}, {what}"])


def mode_of(run: Evidence, baseline: Evidence, asked: str | None) -> str:
    """The mode whose step is compared: training, unless inference is asked for or all there is."""
    if asked is not None and asked not in MODES:
        raise SpecError([f"mode: got {asked!r}, must be one of {', '.join(MODES)}"])
    modes = MODES if asked is None else (asked,)
    for mode in modes:
        if run.measured_in(mode) and baseline.measured_in(mode):
            return mode
    has_some = any(run.measured_in(mode) for mode in modes)
    lacking = baseline if has_some else run
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
    # Of GPUs with what changes their speed.
    gpus = (
        ", ".join(f"{one.name} ({one.memory_gib} GiB, {one.power_limit_w} W)" for one in side.gpus)
        for side in (ours, theirs)
    )
    for what, a, b in (
        ("CPU", ours.cpu, theirs.cpu),
        ("GPU", *(names or "none" for names in gpus)),
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
            if one.what.startswith("data.")
            or one.what in SAME_RESOLVED
            or ours.settings.get(one.what) != theirs.settings.get(one.what)
        ]
        weights = ["untrained" if t.weights_of is None else "trained" for t in (ours, theirs)]
        found += [("weights", *weights)] if weights[0] != weights[1] else []
        for name, first, second in found[:1]:
            raise RecordError(
                f"{run.path}: {ours.cell}: {name} is {first}, in the baseline {second}; "
                "run both with the same settings"
            )


def _machine(evidence: Evidence) -> Environment:
    """The machine of the timed trials; where there are none, the run's first."""
    names = (one.trial.environment or "" for one in evidence.measured)
    known = (evidence.environments[name] for name in names if name in evidence.environments)
    return next(known, evidence.environment)


# What a gate says: what follows from all of its comparisons, as a value and in words.

GateVerdict = Literal["pass", "fail", "cannot tell"]
EXIT_CODES: dict[GateVerdict, int] = {"pass": 0, "fail": 1, "cannot tell": 3}
OUTCOMES: dict[Judgement, GateVerdict] = {
    "worse": "fail",
    "cannot tell": "cannot tell",
    "not worse": "pass",
}
"""What a gate comes to by the worst of its comparisons, the worst first."""
KINDS = {"processes": ("processes", "max-processes"), "seeds": SEED_OPTIONS}
"""What more of would decide: processes for times, seeds for metrics; and the options that say how many."""
MOST_ASKED = 50
"""Processes or seeds that somebody might wait for."""
MOST_DIFFERENCES = 8
"""Named one by one; `compare` lists all."""


def check_sentence(check: Check, words: Words) -> str:
    """Verdict, change, bounds and margin of one comparison."""
    subject, change, interval = check.subject, check.change, check.interval
    kind, of_each = ("time", "processes") if check.is_cost else ("metric", "seeds")
    counts = words(f"gate_{of_each}", run=check.num_run, baseline=check.num_baseline)
    parts: dict[str, object] = {"counts": counts, "metric": words.metric(subject)}
    parts["step"] = words.step(subject.partition("/")[0])
    key = f"gate_{kind}_{check.verdict.replace(' ', '_')}"
    if check.has_diverged:
        key = "gate_diverged"
    elif check.is_cost and change is None:
        key = "gate_not_measured"
    elif interval is None:
        key = f"gate_{kind}_no_noise"
    ends = () if interval is None else (interval.low, interval.high)
    if change is not None and check.is_cost:
        parts |= {"ratio": figure(change, 4), "margin": f"{100 * check.margin:.3g}%"}
        parts |= zip(("low", "high"), (figure(end, 4) for end in ends), strict=False)
    elif change is not None:
        parts["change"] = metric_difference(subject, change, words("points"))
        parts["value"] = metric_value(subject, check.run)
        parts["margin"] = size_text(subject, check.margin, words)
        shown = (metric_difference(subject, end, "", change).strip() for end in ends)
        parts |= zip(("low", "high"), shown, strict=False)
    return words.tidy(words(key, **parts))


def needs_sentence(kind: str, checks: Sequence[Check], words: Words) -> str:
    """How many processes or seeds would decide all of these; empty where none would."""
    needed = most_needed(one.needed for one in checks)
    unchanged = most_needed(one.needed_unchanged for one in checks)
    if unchanged is None:
        return "" if needed is None else words(f"gate_{kind}_as_measured", number=needed)
    if kind == "processes" and any(one.interval is None for one in checks):
        return words("gate_processes_usual", unchanged=unchanged, noise=f"{100 * USUAL_STD:.3g}%")
    if needed is None:
        return words(f"gate_{kind}_if_unchanged", unchanged=unchanged)
    return words(f"gate_{kind}_needed", number=needed, unchanged=unchanged)


def most_needed(numbers: Iterable[int | None]) -> int | None:
    """The largest; None where one is not known, or there is none."""
    known = list(numbers)
    return None if None in known else max(filter(None, known), default=None)


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
    disturbed: tuple[Disturbance, ...]
    """What else ran while a run was timed."""
    num_failed: int
    """Trials of the run that failed: those that ended are compared."""
    left_out: tuple[str, ...]
    """Records of either run that are damaged, as error lines."""

    @property
    def verdict(self) -> GateVerdict:
        """`fail` where anything is surely worse, `pass` where all is surely not."""
        found = {check.verdict for check in self.checks}
        return next((o for worst, o in OUTCOMES.items() if worst in found), "pass")

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail, 3 for cannot tell."""
        return EXIT_CODES[self.verdict]

    @property
    def ratio(self) -> float | None:
        """How many times as long a step takes where it became slowest; None where none was compared."""
        return None if self._slowest is None else self._slowest.change

    @property
    def interval(self) -> Interval | None:
        """The bounds of that ratio."""
        return None if self._slowest is None else self._slowest.interval

    @property
    def _slowest(self) -> Check | None:
        timed = (one for one in self.checks if one.is_cost and one.change is not None)
        return max(timed, key=lambda one: one.change or 0.0, default=None)

    @property
    def processes_needed(self) -> int | None:
        """Of each run, to decide every time that is open; None where nothing is, or it cannot be said."""
        return most_needed(one.needed for one in self._open("processes"))

    @property
    def seeds_needed(self) -> int | None:
        """The same for the seeds that decide metrics."""
        return most_needed(one.needed for one in self._open("seeds"))

    def _open(self, kind: str) -> list[Check]:
        """What more processes, or seeds, would decide."""
        found = (one for one in self.checks if one.is_cost == (kind == "processes"))
        return [one for one in found if one.verdict == "cannot tell"]

    def sentences(self, lang: str = "en", *, cell: str = "{}") -> list[str]:
        """The verdict, then each comparison, its setting named as `cell` says, then what would tell."""
        words, ranks = Words(lang), list(OUTCOMES)
        worst = next(judged for judged, outcome in OUTCOMES.items() if outcome == self.verdict)
        some = sum(one.verdict == worst for one in self.checks)
        key = f"gate_{self.verdict.replace(' ', '_')}"
        texts = [words(key, some=some, all=len(self.checks))] if len(self.checks) > 1 else []
        names_cells = len({one.cell for one in self.checks}) > 1
        for one in sorted(self.checks, key=lambda one: ranks.index(one.verdict)):
            name = f"{cell.format(one.cell)}{words('colon')}" if names_cells else ""
            texts.append(name + check_sentence(one, words))
        return [*texts, *filter(None, (needs_sentence(k, self._open(k), words) for k in KINDS))]

    def commands(self) -> list[str]:
        """What to run with the code of either run where it is open: the command that made it, with as many
        processes or seeds as would decide. Empty where none made it, or there were as many already."""
        commands = []
        for kind, instead_of in KINDS.items():
            checks = self._open(kind)
            numbers = ("needed", "needed_unchanged")
            known = (most_needed(getattr(one, number) for one in checks) for number in numbers)
            there = min((min(one.num_run, one.num_baseline) for one in checks), default=0)
            needed = next((number for number in known if number and number <= MOST_ASKED), 0)
            if needed > there:
                commands.append(command_with(self.command, f"--{kind} {needed}", instead_of))
        return [command for command in commands if command is not None]

    def markdown(self, lang: str = "en") -> str:
        """One paragraph, for a comment on a pull request."""
        words = Words(lang)
        lead, *texts = self.sentences(lang, cell="`{}`")
        again = [words("gate_again", command=f"`{one}`") for one in self.commands()]
        return words.sentences(f"**{lead}**", *texts, *again)

    def differences(self, lang: str = "en") -> str:
        """What else differs between the runs, in a sentence; empty where nothing does."""
        words = Words(lang)
        parts = [
            f"{words.differing(one.what)} {words.level(one.first)} → {words.level(one.second)}"
            for one in self.differs
        ]
        if len(parts) > MOST_DIFFERENCES:
            parts[MOST_DIFFERENCES:] = ["…"]
        listed = words("list_semicolon").join(parts)
        return words("gate_differs", differences=listed) if parts else ""


def gate_of(
    run: Evidence,
    baseline: Evidence,
    *,
    slower: float | None = None,
    worse: Mapping[str, float] | None = None,
    mode: str | None = None,
    any_host: bool = False,
) -> Gate:
    """RecordError where the runs are not of the same thing; SpecError where a margin is none. The time of a
    step is compared where `slower` is given or `worse` is not."""
    worse = worse or {}
    margin = DEFAULT_SLOWER if slower is None and not worse else slower
    problems = [
        f"worse: got {amount} for {metric}, must be above 0, as test/accuracy=0.01"
        for metric, amount in worse.items()
        if not 0 < amount < math.inf
    ]
    if margin is not None and not 0 < margin < 1:
        problems[:0] = [
            f"slower: got {100 * margin:g}%, must be above 0% and below 100%, as 5% or 0.05"
        ]
    if problems:
        raise SpecError(problems)
    check_comparable(run, baseline, worse)
    of_run, of_baseline = ([cell.id for cell in one.cells] for one in (run, baseline))
    cells = [cell for cell in of_baseline if cell in of_run]
    measured = None if margin is None else mode_of(run, baseline, mode)
    kinds = {"learn": bool(worse), "cost": measured is not None}
    both = zip(cells, cells, strict=True)
    pairs = [one for one in trial_pairs(run, baseline, both, measured) if kinds[one[0].kind]]
    check_same_settings(run, pairs)
    checks: list[Check] = []
    disturbed: list[Disturbance] = []
    number = len(cells) * ((measured is not None) + len(worse))
    if margin is not None and measured is not None:
        check_same_machine(run, baseline, any_host)
        checks += cost_checks(run, baseline, cells, measured, margin, number)
        disturbed = [o for side in (run, baseline) for o in disturbances(side, cells, measured)]
    for metric, amount in worse.items():
        checks += metric_checks(run, baseline, cells, metric, amount, number)
    # Whatever else differs: the code, what settings became, packages, commits.
    differs = [c for ours, theirs in pairs for c in trial_confounds(theirs, ours, frozenset())]
    differs += run_confounds(_machine(baseline), _machine(run))
    return Gate(
        run=run.path,
        baseline=baseline.path,
        command=run.record.command,
        mode=measured,
        checks=tuple(checks),
        only_run=tuple(cell for cell in of_run if cell not in cells),
        only_baseline=tuple(cell for cell in of_baseline if cell not in cells),
        differs=tuple(dict.fromkeys(differs)),
        disturbed=tuple(disturbed),
        num_failed=sum(trial.state == "failed" for trial in run.trials),
        left_out=tuple(f"{s.path}: {lost.reason}" for s in (run, baseline) for lost in s.damaged),
    )
