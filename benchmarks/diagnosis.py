"""Whether `trainlab diagnose` finds planted faults, and finds none where there is none.

    python -m benchmarks.diagnosis --scripts benchmarks/faults --healthy 20

Each script with a fault once: the fault must be named first and confirmed. The healthy one as often as is
asked: no limit may be confirmed. Exits 1 where that does not hold.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from trainlab.lab.script_study import MOST_TRIED, PROCESSES, diagnose
from trainlab.record.script_record import DiagnosisRecord

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
    parser.add_argument("--most", type=int, default=MOST_TRIED)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
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
                most=args.most,
                processes=args.processes,
                out=Path(folder) / "run",
            )
            took_s = time.monotonic() - start_s
        assert found is not None
        print(f"| {name} | {FAULTS.get(name, 'none')} | {line(found)} | {took_s:.0f} |", flush=True)
        num_wrong += not is_right(name, found)
    print(f"\n{len(names) - num_wrong} of {len(names)} as planted")
    return 1 if num_wrong else 0


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
