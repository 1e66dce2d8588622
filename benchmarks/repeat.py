"""Whether repeated labs agree as often as their intervals say, and how much of them is flagged.

    python -m benchmarks.repeat [--repeats 10] [--device cuda] [--busy]

Runs the timed part of `mnist-lab` again and again, as the lab ships it. For every ratio between cells: its
95% interval in each lab, and whether that holds the mean of all other labs. `--busy` keeps one core busy
meanwhile. Bounds: in the median lab the widest interval is at most ±5% (±10% beside a busy core); at most
one time per batch in ten is flagged (not with `--busy`); all ratios of a lab agree with the other labs so
often that a true rate of 95% would give fewer in no more than 1 of 100 runs.
"""

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from scipy import stats

from trainlab.analysis.cost import ratios_in
from trainlab.analysis.evidence import gather
from trainlab.analysis.measurement import MODES
from trainlab.execute.executors import executor_for
from trainlab.execute.planned_run import start_run
from trainlab.plan import plan
from trainlab.resolve import resolve
from trainlab.spec import Study
from trainlab.spec.question import checked_question
from trainlab.studies import builtin_study
from trainlab.train.loader import Loader
from trainlab.workloads.reference import BUILTIN


@dataclass(frozen=True)
class Lab:
    """One repeat: its ratios as logs with their half-widths, by mode and cell; and what was flagged."""

    ratios: dict[tuple[str, str], tuple[float, float]]
    num_flagged: int
    num_measured: int
    num_processes: int
    seconds: float

    @property
    def widest(self) -> float:
        """The half-width of the widest interval, as a share."""
        return math.expm1(max(width for _, width in self.ratios.values()))


def timed_study(device: str) -> Study:
    """mnist-lab on one device and bundled data, without its training."""
    asked = builtin_study("mnist-lab").model_dump(exclude={"targets"})
    asked["vary"].pop("device")
    asked["settings"] |= {"device": device, "data": "bundled"}
    asked["margins"] = {}
    return resolve(checked_question({**asked, "learn": False}), BUILTIN["mnist-cnn"])


def lab(folder: Path, study: Study) -> Lab:
    """Runs the timed groups of the study and reads what they show."""
    run, start_s = start_run(study, folder), time.monotonic()
    timed = [group for group in plan(study) if group.bench is not None]
    with closing(executor_for("processes", Loader())) as executor:
        executor.run(run, timed, lambda: False)
    seconds = time.monotonic() - start_s
    evidence = gather(run)
    ratios = {}
    for mode in MODES:
        first, *others = evidence.measured_in(mode)
        for other, found in zip(
            others, ratios_in(evidence, mode, [(first, other) for other in others]), strict=True
        ):
            width = math.log1p(found.half_width or math.inf)
            ratios[mode, other.trial.cell] = (math.log(found.ratio.value), width)
    flagged = sum(m.summary.unstable is not None for m in evidence.measured)
    processes = max(m.summary.num_processes for m in evidence.measured)
    return Lab(ratios, flagged, len(evidence.measured), processes, seconds)


def agreement(labs: Sequence[Lab]) -> list[bool]:
    """By lab: whether every interval, widened by the error of the mean of the others, holds that mean."""
    return [
        all(_agrees(key, one, [other for other in labs if other is not one]) for key in one.ratios)
        for one in labs
    ]


def _agrees(key: tuple[str, str], one: Lab, others: Sequence[Lab]) -> bool:
    value, width = one.ratios[key]
    means = [other.ratios[key][0] for other in others]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    return abs(value - statistics.fmean(means)) <= math.hypot(width, 2 * error)


@contextmanager
def one_core_busy(is_wanted: bool) -> Iterator[None]:
    """Beside a process that does nothing but count, where that is wanted."""
    if not is_wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Prints every lab and the rates; exits 1 where a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--busy", action="store_true")
    given = parser.parse_args()
    study, labs = timed_study(given.device), []
    print(f"torch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads")
    with TemporaryDirectory() as folder, one_core_busy(given.busy):
        for number in range(1, given.repeats + 1):
            labs.append(lab(Path(folder) / str(number), study))
            found = labs[-1]
            texts = [
                f"{mode} {cell} {math.exp(value):.4f} ±{math.expm1(width):.1%}"
                for (mode, cell), (value, width) in found.ratios.items()
            ]
            print(
                f"{number:3} {'; '.join(texts)}; flagged {found.num_flagged} of {found.num_measured}; "
                f"{found.num_processes} processes, {found.seconds:.0f} s",
                flush=True,
            )
    raise SystemExit(not _told(labs, is_busy=given.busy))


def _told(labs: Sequence[Lab], *, is_busy: bool) -> bool:
    widest = statistics.median(one.widest for one in labs)
    flagged = sum(one.num_flagged for one in labs) / sum(one.num_measured for one in labs)
    agreed = agreement(labs) if len(labs) > 1 else []
    chance = float(stats.binom.cdf(sum(agreed), len(agreed), 0.95)) if agreed else 1.0
    bounds = {
        f"widest interval of the median lab ±{widest:.1%}": widest <= (0.10 if is_busy else 0.05),
        f"{flagged:.0%} of times per batch flagged": is_busy or flagged <= 0.10,
        f"{sum(agreed)} of {len(agreed)} labs agree with the others (chance of so few {chance:.2f})": (
            chance >= 0.01
        ),
    }
    for text, held in bounds.items():
        print(f"{text}: {'ok' if held else 'NOT MET'}")
    return all(bounds.values())


if __name__ == "__main__":
    main()
