"""Whether `trainlab diagnose` finds planted faults, and finds none where there is none.

    python -m benchmarks.diagnosis --scripts benchmarks/faults --healthy 20
    python -m benchmarks.diagnosis --simulated 1000

Each script with a fault once: the fault must be named first and confirmed, within the time. The healthy
one as often as is asked: no limit may be confirmed. Exits 1 where that does not hold. `--simulated`: the
rule by which changes are decided, on made-up processes whose truth is known; nothing is run.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trainlab.analysis.diagnosis import Hypothesis, cell_of, tried_rows
from trainlab.lab.script_study import BUDGET_S, TOGETHER, diagnose
from trainlab.record.script_record import DiagnosisRecord, LimitVerdict, TriedRow
from trainlab.spec.script import DiagnosisSpec
from trainlab.spec.study import BASE

FAULTS = {
    "slow_loader": "data",
    "item_each_step": "between",
    "tiny_batch": "batch_size",
    "unfused_optimizer": "optimizer",
    "leak": "memory",
    "wrong_threads": "threads",
    "eval_too_often": "evaluation",
    "logs_to_disk": "logging",
}
"""Script to the limit that was planted."""
HEALTHY = "healthy"


def main() -> int:
    """Prints a line per diagnosis."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", type=Path, default=Path("benchmarks/faults"))
    parser.add_argument("--only", nargs="*", help="these scripts only")
    parser.add_argument(
        "--healthy", type=int, default=2, help="times that the healthy one is tried"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for each")
    parser.add_argument("--simulated", type=int, help="so many simulated diagnoses instead")
    args = parser.parse_args()
    if args.simulated:
        return simulate(args.simulated)
    names = [*FAULTS, *[HEALTHY] * args.healthy]
    if args.only:
        names = [name for name in names if name in args.only]
    print("| script | planted | first | verdict | change | time with it | 95% CI | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    num_wrong = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            start_s = time.monotonic()
            _, found = diagnose(
                args.scripts / f"{name}.py",
                budget_s=args.budget,
                out=Path(folder) / "run",
            )
            took_s = time.monotonic() - start_s
        assert found is not None
        print(f"| {name} | {FAULTS.get(name, 'none')} | {line(found)} | {took_s:.0f} |", flush=True)
        num_wrong += not is_right(name, found)
    print(f"\n{len(names) - num_wrong} of {len(names)} as planted")
    return 1 if num_wrong else 0


def simulate(number: int) -> int:
    """Prints how often healthy scripts get a confirmation, and how often a gain does; 1 where the first is
    more than 5%."""
    print(
        "| noise of processes | any of four without effect confirmed | 15% | 30% | 60% confirmed |"
    )
    print("| --- | --- | --- | --- | --- |")
    most = 0.0
    for noise in (0.01, 0.02, 0.05, 0.1, 0.2):
        false = share_of("confirmed", dict.fromkeys("abcd", 1.0), noise, number)
        gains = ({"a": ratio, "b": 1.0} for ratio in (0.85, 0.7, 0.4))
        shares = [share_of("confirmed", ratios, noise, number, "a") for ratios in gains]
        most = max(most, false)
        told = " | ".join(f"{share:.1%}" for share in (false, *shares))
        print(f"| {noise:.0%} | {told} |", flush=True)
    return 1 if most > 0.05 else 0


def share_of(
    verdict: LimitVerdict, ratios: Mapping[str, float], noise: float, number: int, of: str = ""
) -> float:
    """Of so many diagnoses of changes with these true ratios, those that give this verdict to the change,
    or to any; `noise`: the standard deviation of the log of a process's time. Of every second change it is
    twice as large."""
    draw = np.random.default_rng(1)
    found = (simulated(draw, ratios, noise) for _ in range(number))
    return (
        sum(
            any(row.verdict == verdict and of in ("", row.change) for row in rows.values())
            for rows in found
        )
        / number
    )


def simulated(
    draw: np.random.Generator, ratios: Mapping[str, float], noise: float
) -> Mapping[str, TriedRow]:
    """A diagnosis, bench by bench: the changes that are open beside the script as it is, twice."""
    guessed = [Hypothesis(limit="data", changes=(change,)) for change in ratios]
    noises = {change: noise * (1 + place % 2) for place, change in enumerate(ratios)}
    most, usual = DiagnosisSpec().processes, list[tuple[str, str, float]]()
    rows: Mapping[str, TriedRow] = {}

    def is_open(change: str) -> bool:
        row = rows.get(change)
        return row is None or (row.verdict == "cannot tell" and row.processes < most)

    while still := [change for change in ratios if is_open(change)][:TOGETHER]:
        bench = str(len(usual))
        usual += [(BASE, bench, luck) for luck in draw.normal(0, noise, 2)]
        usual += [
            (cell_of(one), bench, np.log(ratios[one]) + draw.normal(0, noises[one]))
            for one in still
        ]
        figures = {"usual": usual, "mean": [], "growth": []}
        rows = tried_rows(figures, guessed, (), len(ratios), most)
    return rows


def is_right(script: str, found: DiagnosisRecord) -> bool:
    """The planted fault first and confirmed; where none was planted, none."""
    confirmed = [row.limit for row in found.limits if row.verdict == "confirmed"]
    return not confirmed if script == HEALTHY else confirmed[:1] == [FAULTS[script]]


def line(found: DiagnosisRecord) -> str:
    """The first limit and what showed it."""
    if not found.limits:
        return "none | | | |"
    row = found.limits[0]
    one = row.tried[0]
    ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
    interval = "" if one.low is None or one.high is None else f"{one.low:.2f} to {one.high:.2f}"
    if one.growth_bytes is not None:
        before, after = (size / 2**20 for size in one.growth_bytes)
        ratio = f"{after:.2f} in place of {before:.2f} MiB per update"
    return f"{row.limit} | {row.verdict} | {one.change} | {ratio} | {interval}"


if __name__ == "__main__":
    sys.exit(main())
