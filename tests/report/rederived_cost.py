"""What cost trials show, computed again from their raw files."""

import math
import statistics
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from raw_run import Expected, Json, Pair, RawRun, Within, holm
from rederived_learning import SUBJECTS, effects
from scipy import optimize, stats

from trainlab.analyse.findings.finding import Finding

LEVEL = 0.05
MODES = ("train", "inference")


def cost(run: RawRun, found: Finding) -> Expected:
    """Over fresh processes; decided with all other comparisons of the same mode."""
    return costs(run, found.subject.partition("/")[0])[found.cells[0], found.cells[1]]


@lru_cache
def costs(run: RawRun, mode: str) -> dict[Pair, Expected]:
    """One family: Welch's t on logs, Holm, and beyond what one cell measured twice shows."""
    tests = {pair: _welch(run, pair, mode) for pair in run.pairs}
    adjusted = holm([test.pvalue for test in tests.values()])
    return {
        pair: _cost(run, pair, mode, test, p)
        for (pair, test), p in zip(tests.items(), adjusted, strict=True)
    }


def _cost(run: RawRun, pair: Pair, mode: str, test: Any, p: float) -> Expected:
    floor = _floor(run, mode)
    first, second = (_logs(run, cell, mode) for cell in pair)
    ratio = math.exp(second.mean() - first.mean())
    ends = test.confidence_interval(0.95)
    settled = p <= LEVEL and abs(math.log(ratio)) > floor
    numbers: Json = {"ratio": ratio, "p": p, "family": len(run.pairs), "noise_floor": floor}
    for end, logs, cell in (("a", first, pair[0]), ("b", second, pair[1])):
        record = run.processes(cell, mode)[0]
        sample_us = math.exp(logs.mean())
        numbers[f"sample_us_{end}"] = sample_us
        numbers[f"step_ms_{end}"] = sample_us * record["batch_size"] / 1e3
        numbers[f"epoch_s_{end}"] = sample_us * record["num_samples"] / 1e6
    n, std = len(first), math.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    level = LEVEL / len(run.pairs)
    numbers["detectable"] = math.exp(_detectable(n, std, floor, level))
    numbers["processes_needed"] = None
    effect = abs(math.log(ratio))
    if not settled and effect > floor:
        enough = (m for m in range(2, 1001) if _detectable(m, std, floor, level) <= effect)
        numbers["processes_needed"] = next(enough, None)
    interval = (math.exp(ends.low), math.exp(ends.high))
    return Expected(numbers, n, interval, "different" if settled else "cannot tell")


def _welch(run: RawRun, pair: Pair, mode: str) -> Any:
    first, second = (_logs(run, cell, mode) for cell in pair)
    return stats.ttest_ind(second, first, equal_var=False)


def _logs(run: RawRun, cell: str, mode: str, *, again: bool = False) -> np.ndarray:
    """The log of µs per sample of each process's median step."""
    records = run.processes(cell, mode, again=again)
    return np.log([1e3 * np.median(r["step_ms"]) / r["batch_size"] for r in records])


def _floor(run: RawRun, mode: str) -> float:
    once, twice = (_logs(run, run.cells[0], mode, again=again) for again in (False, True))
    return float(np.abs(twice - once).max())


def _detectable(n: int, std: float, floor: float, level: float) -> float:
    """The log ratio that passes the test and the floor in 80 % of cases."""
    freedom, error = 1.5 * (n - 1), std * math.sqrt(2 / n)
    beyond = stats.t.ppf(1 - level / 2, freedom)
    shift = optimize.brentq(lambda s: stats.nct.sf(beyond, freedom, s) - 0.8, 0.1, 20 * beyond)
    return max(shift * error, floor + stats.norm.ppf(0.8) * error)


def memory(run: RawRun, found: Finding) -> Expected:
    """The peak of the watched process."""
    mode = found.subject.partition("/")[0]
    a, b = (run.watched(c, mode, "layers", "memory.json")["peak_bytes"] for c in found.cells)
    return Expected({"mib_a": a / 2**20, "mib_b": b / 2**20, "ratio": b / a}, 1)


def scaling(run: RawRun, found: Finding) -> Expected:
    """A line through the times of the sizes by relative least squares, neither part below zero."""
    mode = found.subject.partition("/")[0]
    times = {size: _step_ms(run, cell, mode) for cell, size in _sizes(run, found).items()}
    fixed, each = _fit(times)
    errors = [
        abs(
            sum(np.array(_fit({k: v for k, v in times.items() if k != size})) * (1, size)) / time
            - 1
        )
        for size, time in times.items()
    ]
    worst = max(errors) if len(times) > 2 else None
    fits = "cannot tell" if worst is None else "fits" if worst <= 0.25 else "does not fit"
    numbers = {
        "fixed_ms": fixed,
        "per_sample_us": 1e3 * each,
        "enough": 4 * fixed / each if each else None,
        "largest": max(times),
        "worst_error": worst,
        "fit": fits,
    }
    return Expected(numbers, len(times), _fixed_interval(times, fixed))


def _step_ms(run: RawRun, cell: str, mode: str) -> float:
    return statistics.geometric_mean(np.median(r["step_ms"]) for r in run.processes(cell, mode))


def _fit(times: dict[int, float]) -> tuple[float, float]:
    sizes, measured = np.array(list(times)), np.array(list(times.values()))
    rows = np.stack((1 / measured, sizes / measured), axis=1)
    found = optimize.lsq_linear(rows, np.ones(len(sizes)), (0, np.inf), method="bvls", tol=1e-14)
    return float(found.x[0]), float(found.x[1])


def _fixed_interval(times: dict[int, float], fixed: float) -> tuple[float, float] | None:
    """By the t quantile on the line that may go below zero; cut at zero."""
    if len(times) < 3:
        return None
    sizes, measured = np.array(list(times)), np.array(list(times.values()))
    line, covariance = np.polyfit(sizes, measured, 1, w=1 / measured, cov=True)
    reach = stats.t.ppf(0.975, len(times) - 2) * math.sqrt(covariance[1, 1])
    return max(0.0, min(fixed, line[1] - reach)), max(fixed, line[1] + reach)


def _sizes(run: RawRun, found: Finding) -> dict[str, int]:
    settings = {cell["id"]: cell["settings"] for cell in run.study["cells"]}
    return {cell: settings[cell]["batch_size"] for cell in found.cells}


def _by_size(run: RawRun, found: Finding) -> dict[int, Json]:
    mode = str(found.numbers["of_mode"])
    return {
        size: run.watched(cell, mode, "operators", "operators.json")
        for cell, size in _sizes(run, found).items()
    }


def _shares(record: Json) -> dict[str, float]:
    """Self time of each operator over the profiled steps."""
    whole = record["profiled_step_us"] * record["num_steps"]
    shares: dict[str, float] = {}
    for row in record["rows"]:
        if row["kind"] == "operator":
            shares[row["name"]] = shares.get(row["name"], 0.0) + row["self_cpu_us"] / whole
    return shares


def _is_of_samples(row: Json) -> bool:
    return row["kind"] == "operator" and row["phase"] in ("forward", "loss", "backward")


def top_operator(run: RawRun, found: Finding) -> Expected:
    """Who takes most at the largest size, and at the smallest."""
    records = _by_size(run, found)
    small, large = _shares(records[min(records)]), _shares(records[max(records)])
    top, first = max(large, key=large.__getitem__), max(small, key=small.__getitem__)
    assert (top, found.levels) == (found.subject, (min(records), max(records)))
    numbers = {
        "of_mode": found.numbers["of_mode"],
        "share_a": small.get(top, 0.0),
        "share_b": large[top],
        "first_a": first,
        "first_share_a": small[first],
        "share_of": "step",
    }
    return Expected(numbers, 1)


def operator_growth(run: RawRun, found: Finding) -> Expected:
    """The average call of one operator at two sizes."""
    records = _by_size(run, found)
    averages, calls = {}, {}
    for size in found.levels:
        record = records[size]  # type: ignore[index]
        rows = [r for r in record["rows"] if r["name"] == found.subject and _is_of_samples(r)]
        averages[size] = sum(r["total_cpu_us"] for r in rows) / sum(r["calls"] for r in rows)
        calls[size] = sum(r["calls"] for r in rows) / record["num_steps"]
    a, b = found.levels
    assert calls[a] == calls[b]
    numbers = {
        "of_mode": found.numbers["of_mode"],
        "time": averages[b] / averages[a],
        "samples": b / a,  # type: ignore[operator]
        "average_us_a": averages[a],
        "average_us_b": averages[b],
    }
    return Expected(numbers, 1)


def optimizer_share(run: RawRun, found: Finding) -> Expected:
    """Of all phases, medians over processes of their mean marked steps."""
    mode = found.subject.partition("/")[0]
    shares = {}
    for cell, size in _sizes(run, found).items():
        records = run.processes(cell, mode)
        marked = {
            name: np.median([np.mean(r["phases_ms"][name]) for r in records])
            for name in records[0]["phases_ms"]
        }
        shares[size] = marked["optimizer"] / sum(marked.values())
    numbers = {"share_a": shares[min(shares)], "share_b": shares[max(shares)]}
    return Expected(numbers, min(len(run.processes(cell, mode)) for cell in found.cells))


def unstable(run: RawRun, found: Finding) -> Expected:
    """Every measurement, in the order of the cells, that says something about itself."""
    told = []
    for cell in run.cells:
        for mode in MODES:
            for again in (False, True):
                if records := run.processes(cell, mode, again=again):
                    told.append(next(_warnings(records), None))
    shaky = [one for one in told if one is not None]
    numbers = {"num_unstable": len(shaky), "num_measured": len(told)}
    numbers |= dict(zip(("warning", "warning_value"), shaky[0], strict=True))
    return Expected(numbers, len(shaky))


def _warnings(records: list[Json]) -> Iterator[tuple[str, float]]:
    medians = [np.median(r["step_ms"]) for r in records]
    if (between := max(medians) / min(medians) - 1) > 0.1:
        yield "processes_differ", between
    if (others := max(r["load"]["others_cores"] for r in records)) > 0.2:
        yield "others_busy", others


def undecided(run: RawRun, found: Finding) -> Expected:
    """Everything that was tested and stayed open."""
    metrics = SUBJECTS if run.study["learn"] else ()
    learn = [one for metric in metrics for one in effects(run, metric).values()]
    modes = MODES if run.study["cost"] else ()
    tested = learn + [one for mode in modes for one in costs(run, mode).values()]
    open_learn = [one for one in learn if one.verdict == "cannot tell"]
    num_open = sum(one.verdict == "cannot tell" for one in tested)
    needed = [n for one in open_learn if isinstance(n := one.numbers["seeds_needed"], Within)]
    numbers = {
        "num_open": num_open,
        "num_tested": len(tested),
        "most_seeds": max((one.n for one in open_learn), default=None),
        "fewest_seeds": max((one.numbers["fewest_seeds"] for one in open_learn), default=None),
        "seeds_needed": min(needed, key=lambda one: one.low, default=None),
    }
    return Expected(numbers, num_open, verdict="cannot tell")
