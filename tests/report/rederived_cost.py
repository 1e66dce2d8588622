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
    sizes = _sizes(run, found)
    times = {size: _step_ms(run, cell, mode) for cell, size in sizes.items()}
    noise, freedom = _process_noise(run, list(sizes), mode)
    fixed, each = _fit(times)
    errors: dict[float, float] = {}
    for size, time in times.items() if len(times) > 2 else ():
        rest = {k: v for k, v in times.items() if k != size}
        off = abs(sum(np.array(_fit(rest)) * (1, size)) / time - 1)
        _, unit = _line(rest, 1.0)
        spread = np.array([size, 1]) / time
        errors[off] = _beyond(freedom, len(times)) * noise * math.sqrt(1 + spread @ unit @ spread)
    worst = max(errors, default=None)
    verdict = "cannot tell"
    if worst is not None and worst <= 0.25:
        verdict = "fits"
    elif any(off > 0.25 and off > allowed for off, allowed in errors.items()):
        verdict = "does not fit"
    intervals, enough = _intervals(times, (each, fixed), noise, freedom)
    numbers = {
        "fixed_ms": fixed,
        "per_sample_us": 1e3 * each,
        "per_sample_us_low": 1e3 * intervals[0][0],
        "per_sample_us_high": 1e3 * intervals[0][1],
        "enough": 4 * fixed / each if each else None,
        "enough_low": enough[0],
        "enough_high": enough[1],
        "largest": max(times),
        "worst_error": worst,
        "allowed_error": None if worst is None else errors[worst],
        "fit": verdict,
    }
    return Expected(numbers, len(times), intervals[1])


def _process_noise(run: RawRun, cells: list[str], mode: str) -> tuple[float, int]:
    """The relative error of one size's time: processes as groups of a one-way analysis of variance."""
    logs = [_logs(run, cell, mode) for cell in cells]
    freedom = sum(map(len, logs)) - len(logs)
    within = sum(((group - group.mean()) ** 2).sum() for group in logs) / freedom
    return math.sqrt(within * np.mean([1 / len(group) for group in logs])), freedom


def _beyond(freedom: int, number: int) -> float:
    return float(stats.t.isf(0.025 / number, freedom))


def _line(times: dict[int, float], error: float) -> tuple[np.ndarray, np.ndarray]:
    """Per sample and fixed, neither kept above zero, with their covariance at that relative error."""
    sizes, measured = np.array(list(times)), np.array(list(times.values()))
    weighted = np.vander(sizes, 2) / measured[:, None]
    inverse = np.linalg.pinv(weighted)
    return inverse @ np.ones(len(times)), error**2 * inverse @ inverse.T


def _intervals(
    times: dict[int, float], fitted: tuple[float, float], noise: float, freedom: int
) -> tuple[list[tuple[float, float]], tuple[float | None, float | None]]:
    """Of per sample and fixed; and of the size beyond which doubling gains little."""
    parts, unit = _line(times, 1.0)
    sizes, measured = np.array(list(times)), np.array(list(times.values()))
    squares = float(((np.polyval(parts, sizes) / measured - 1) ** 2).sum())
    own = len(times) - 2
    if own and stats.f.sf(squares / own / noise**2, own, freedom) < LEVEL:
        error, degrees = math.sqrt(squares / own), own
    else:
        degrees = own + freedom
        error = math.sqrt((squares + freedom * noise**2) / degrees)
    reach = stats.t.ppf(0.975, degrees)
    covariance = error**2 * unit
    ends = [
        (max(0.0, min(v, p - reach * s)), max(v, p + reach * s))
        for v, p, s in zip(fitted, parts, np.sqrt(np.diag(covariance)), strict=True)
    ]
    each, fixed = parts
    squared = reach**2 * covariance
    # The ratios at which fixed - ratio * each is just as far from zero as its error allows.
    roots = np.roots(
        [
            each**2 - squared[0, 0],
            -2 * (each * fixed - squared[0, 1]),
            fixed**2 - squared[1, 1],
        ]
    )
    if each**2 <= squared[0, 0] or np.iscomplex(roots).any() or not fitted[0]:
        return ends, (4 * ends[1][0] / ends[0][1], None)
    enough = 4 * fitted[1] / fitted[0]
    low, high = sorted(4 * roots.real)
    return ends, (max(0.0, min(low, enough)), max(high, enough))


def _step_ms(run: RawRun, cell: str, mode: str) -> float:
    return statistics.geometric_mean(np.median(r["step_ms"]) for r in run.processes(cell, mode))


def _fit(times: dict[int, float]) -> tuple[float, float]:
    sizes, measured = np.array(list(times)), np.array(list(times.values()))
    rows = np.stack((1 / measured, sizes / measured), axis=1)
    found = optimize.lsq_linear(rows, np.ones(len(sizes)), (0, np.inf), method="bvls", tol=1e-14)
    return float(found.x[0]), float(found.x[1])


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
        "seeds_needed": min(needed, key=lambda one: one.low, default=None),
    }
    return Expected(numbers, num_open, verdict="cannot tell")
