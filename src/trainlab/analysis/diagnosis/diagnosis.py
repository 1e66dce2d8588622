"""From the records of a run to its diagnosis."""

import statistics
from collections.abc import Mapping, Sequence

from trainlab.analysis.diagnosis.hypotheses import Hypothesis, device_of
from trainlab.analysis.diagnosis.parts import update_parts_ms
from trainlab.analysis.diagnosis.verdicts import (
    MIN_GAIN,
    Timed,
    compared,
    growth_compared,
    min_gain,
    verdict_of,
)
from trainlab.record.folder import RunFolder
from trainlab.record.scripts.diagnosis import DiagnosisRecord, LimitRow, LimitVerdict, TriedRow
from trainlab.record.scripts.watched import WatchedRecord
from trainlab.spec.cell import BASE
from trainlab.stats.cost_ratio import CostComparison

ORDER: Mapping[LimitVerdict, int] = {
    "confirmed": 0,
    "cannot tell": 1,
    "not tried": 2,
    "refuted": 3,
}


def cell_of(change: str) -> str:
    """The id of the cell in which a change is made."""
    return f"change={change}"


def diagnosis_of(
    run: RunFolder, watched: WatchedRecord, hypotheses: Sequence[Hypothesis], cores: int
) -> DiagnosisRecord:
    """Of a run whose trials have ended."""
    timed, failures = _timed(run)
    parts = update_parts_ms(watched)
    rare = {
        cell_of(change)
        for one in hypotheses
        if one.is_rare
        for change in (*one.changes, *one.remedies)
    }
    found = compared(timed, BASE, rare)
    limits = [_limit(one, timed, found, failures) for one in hypotheses]
    study = run.study().to_study(str(run.study_file))
    busy = [one.cost.load.others_cores for one in timed]
    return DiagnosisRecord(
        script=study.workload,
        device=device_of(watched),
        num_updates=watched.num_steps,
        update_ms=sum(parts.values()),
        parts_ms=parts,
        cores=cores,
        threads=watched.threads,
        batch_size=watched.batch_size,
        min_gain=MIN_GAIN,
        others_cores=statistics.fmean(busy) if busy else 0.0,
        limits=sorted(limits, key=_rank),
    )


def _timed(run: RunFolder) -> tuple[list[Timed], dict[str, str]]:
    """What was measured, and why cells could not be."""
    timed, failures = list[Timed](), dict[str, str]()
    for trial in run.trials():
        if trial.watch != "steps":
            continue
        if trial.state == "done":
            cost = run.trial(trial.id).cost.read()
            timed.append(Timed(trial.cell, trial.again, cost.bench, cost))
        elif trial.error is None:
            failures.setdefault(trial.cell, "no_time")
        elif trial.error.kind == "UnusedChangeError":
            failures[trial.cell] = "no_difference"
        else:
            failures[trial.cell] = trial.error.message.partition("\n")[0]
    return timed, failures


def _limit(
    hypothesis: Hypothesis,
    timed: Sequence[Timed],
    found: Mapping[str, CostComparison],
    failures: Mapping[str, str],
) -> LimitRow:
    def tried(change: str, *, is_remedy: bool) -> TriedRow:
        cell = cell_of(change)
        if hypothesis.limit == "memory" and cell in found:
            return _growth_row(change, timed, len(found))
        if cell in found:
            return _row(change, found[cell], min_gain(hypothesis.limit), is_remedy)
        reason = failures.get(cell, "not_chosen")
        return TriedRow(change=change, is_remedy=is_remedy, verdict="not tried", reason=reason)

    shown = [tried(change, is_remedy=False) for change in hypothesis.changes]
    if not hypothesis.changes:
        shown = [
            TriedRow(change="", is_remedy=False, verdict="not tried", reason=hypothesis.reason)
        ]
    remedies = [
        tried(change, is_remedy=True)
        for change in hypothesis.remedies
        if cell_of(change) in found or cell_of(change) in failures
    ]
    return LimitRow(
        limit=hypothesis.limit,
        share=hypothesis.share,
        potential=hypothesis.potential,
        verdict=min((one.verdict for one in shown), key=ORDER.__getitem__),
        tried=[*shown, *remedies],
        line=hypothesis.line,
        text=hypothesis.text,
        number=hypothesis.number,
    )


def _row(change: str, found: CostComparison, gain: float, is_remedy: bool) -> TriedRow:
    interval = found.ratio.interval
    return TriedRow(
        change=change,
        is_remedy=is_remedy,
        verdict=verdict_of(found, gain),
        ratio=found.ratio.value,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        processes=found.n,
        processes_needed=found.processes_needed,
    )


def _growth_row(change: str, timed: Sequence[Timed], num_changes: int) -> TriedRow:
    found = growth_compared(timed, BASE, cell_of(change), num_changes)
    if found is None:
        return TriedRow(change=change, is_remedy=False, verdict="not tried", reason="few_looks")
    return TriedRow(
        change=change,
        is_remedy=False,
        verdict=found.verdict,
        processes=found.n,
        growth_bytes=(found.before_bytes, found.after_bytes),
    )


def _rank(row: LimitRow) -> tuple[int, int, float]:
    """What is shown first: a leak ends a training altogether; a larger batch changes what is learned, and
    comes after what does not."""
    is_leak, is_batch = row.limit == "memory", row.limit == "batch_size"
    ratios = [one.ratio for one in row.tried if one.ratio is not None and not one.is_remedy]
    gain = 1 - min(ratios) if ratios else row.potential
    return ORDER[row.verdict], -1 if is_leak else int(is_batch), -gain
