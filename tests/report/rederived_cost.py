"""What cost trials show, computed again from their raw files."""

import math
import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from raw_run import Expected, Json, Pair, RawRun, Within
from rederived_learning import SUBJECTS, effects, failure_rates, time_differences
from scipy import optimize, stats

from trainlab.analysis.finding import Finding
from trainlab.stats.contrasts import compare_cells, estimate

LEVEL = 0.05
MODES = ("train", "inference")


def cost(run: RawRun, found: Finding) -> Expected:
    """Over fresh processes; decided with all other comparisons of the same mode."""
    return costs(run, found.subject.partition("/")[0])[found.cells[0], found.cells[1]]


@lru_cache
def costs(run: RawRun, mode: str) -> dict[Pair, Expected]:
    """One family: ratios within benches, their noise from all cells, more where cells differ from
    themselves. The noise of contrasts and their critical value are held to account elsewhere."""
    rows = _rows(run, mode)
    figures = np.array([[bench[row] for bench in _benches(run, mode)] for row in rows])
    twice = _weights([((cell, False), (cell, True)) for cell, again in rows if again], rows)
    apart = estimate(figures, twice)
    excess = max(0.0, float(np.mean(apart.value**2 - apart.error**2)))
    is_noise = bool((np.abs(apart.scores(apart.value)) <= 3).all())
    pairs = [pair for pair in run.pairs if all((cell, False) in rows for cell in pair)]
    weights = _weights([((a, False), (b, False)) for a, b in pairs], rows)
    family = compare_cells(figures, weights)
    noise = math.exp(np.abs((twice @ figures).mean(axis=1)).max())
    found = {}
    for place, pair in enumerate(pairs):
        plain = family.estimates.error[place]
        freedom = family.estimates.degrees_of_freedom[place]
        known = _Known(plain, excess, freedom, family.critical, figures.shape[1], is_noise)
        value = float((weights[place] @ figures).mean())
        found[pair] = _cost(run, pair, mode, value, known)
        found[pair].numbers.update(noise=noise, family=len(pairs))
        wide = known.reach(known.critical.two_sided)
        _intervals(run, mode)[pair] = (math.exp(value - wide), math.exp(value + wide))
    return found


@lru_cache
def _intervals(run: RawRun, mode: str) -> dict[Pair, tuple[float, float]]:
    """The 95% intervals of all ratios, filled by `costs`."""
    return {}


@dataclass(frozen=True)
class _Known:
    """How well a log ratio is known."""

    plain: float
    excess: float
    freedom: float
    critical: Any
    n: int
    is_noise: bool

    @property
    def error(self) -> float:
        return math.hypot(self.plain, math.sqrt(self.excess))

    def reach(self, score: float) -> float:
        """Half of an interval with this normal score at its ends."""
        return float(stats.t.ppf(stats.norm.cdf(score), self.freedom) * self.error)

    def found_with(self, power: float, n: int) -> float:
        """The log ratio that n benches find so often: errors shrink with the root of n."""
        error = math.sqrt(max(1.35 * self.plain**2, self.plain**2 + self.excess) * self.n / n)
        freedom = self.freedom * (n - 1) / (self.n - 1)
        quantile = stats.t.ppf(stats.norm.cdf(self.critical.two_sided), freedom)
        return float(error * (quantile + stats.norm.ppf(power)))


def _cost(run: RawRun, pair: Pair, mode: str, value: float, known: _Known) -> Expected:
    margin = run.study["margins"].get(f"{mode}/sample_us")
    wide, narrow = known.reach(known.critical.two_sided), known.reach(known.critical.one_sided)
    verdict = "cannot tell"
    if abs(value) > wide:
        verdict = "different"
    elif margin is not None and abs(value) + narrow < math.log1p(margin):
        verdict = "equivalent"
    score = stats.norm.isf(stats.t.sf(abs(value) / known.error, known.freedom))
    beyond = int((known.critical.largest >= score).sum())
    p = (beyond + 1) / (len(known.critical.largest) + 1)
    numbers: Json = {"ratio": math.exp(value), "p": p, "margin": margin, "processes_needed": None}
    numbers["host_bound"] = None  # on the CPU
    numbers["detectable"] = math.exp(known.found_with(0.8, known.n))
    if verdict == "cannot tell" and known.is_noise:
        counts = range(known.n + 1, 1001)
        enough = (m for m in counts if known.found_with(0.9, m) <= abs(value))
        numbers["processes_needed"] = next(enough, None)
    for end, cell in zip("ab", pair, strict=True):
        record = run.processes(cell, mode)[0]
        numbers[f"step_ms_{end}"] = _step_ms(run, cell, mode)
        numbers[f"sample_us_{end}"] = 1e3 * _step_ms(run, cell, mode) / record["batch_size"]
        numbers[f"epoch_s_{end}"] = _epoch_s(run, cell, mode)
    reach = narrow if verdict == "equivalent" else wide
    interval = (math.exp(value - reach), math.exp(value + reach))
    return Expected(numbers, known.n, interval, verdict)


Row = tuple[str, bool]
"""A cell, and whether it is the second of an A/A pair."""


def _rows(run: RawRun, mode: str) -> list[Row]:
    """In the order of the cells, an A/A pair in its own order."""
    rows = [(cell, again) for cell in run.cells for again in (False, True)]
    return [row for row in rows if run.processes(row[0], mode, again=row[1])]


def _weights(pairs: list[tuple[Row, Row]], rows: list[Row]) -> np.ndarray:
    weights = np.zeros((len(pairs), len(rows)))
    for place, (a, b) in enumerate(pairs):
        weights[place, rows.index(a)], weights[place, rows.index(b)] = -1, 1
    return weights


@lru_cache
def _benches(run: RawRun, mode: str) -> list[dict[Row, float]]:
    """By bench, the log of µs per sample of every row, as its rounds give it."""
    found: dict[str, dict[Row, Json]] = {}
    # In the order they ran in: of rows with equally few holes the first is the reference.
    for cell, again in sorted(_rows(run, mode), key=lambda row: row[1]):
        for record in run.processes(cell, mode, again=again):
            found.setdefault(record["bench"], {})[cell, again] = record
    return [_levels(records) for records in found.values()]


def _levels(records: dict[Row, Json]) -> dict[Row, float]:
    """Rows and rounds as a table with holes; the reference is the mean of all rows, put on one level by
    the row with the fewest."""
    rounds = sorted({t["round"] for r in records.values() for t in r["turns"]})
    table = np.full((len(records), len(rounds)), np.nan)
    for place, record in enumerate(records.values()):
        for number, steps in _quiet(record).items():
            table[place, rounds.index(number)] = np.log(np.median(steps))
    first = table[np.isnan(table).sum(axis=1).argmin()]
    near = np.nanmedian(table - first, axis=1, keepdims=True)
    reference = np.nanmean(table - near, axis=0)
    ratios = np.nanmedian(table - reference, axis=1, keepdims=True)
    of_round = np.nanmedian(table - ratios, axis=0)
    levels = np.nanquantile(table - of_round, 0.25, axis=1) + np.nanmedian(of_round)
    sizes = np.array([record["batch_size"] for record in records.values()])
    return dict(zip(records, levels + np.log(1e3 / sizes), strict=True))


def _quiet(record: Json) -> dict[int, list[float]]:
    """The bare steps of turns beside which little else ran, by round."""
    steps, found = iter(record["step_ms"]), {}
    for turn in record["turns"]:
        own = [next(steps) for _ in range(turn["num_bare"])]
        if turn["others_cores"] <= 0.3 and turn["stolen_cores"] <= 0.1:
            found[turn["round"]] = own
    assert len(found) >= max(5, len(record["turns"]) / 2), "then all would count"
    return found


def _processes_ms(run: RawRun, row: Row, mode: str) -> list[float]:
    size = run.processes(row[0], mode)[0]["batch_size"]
    return [math.exp(bench[row]) * size / 1e3 for bench in _benches(run, mode)]


def _step_ms(run: RawRun, cell: str, mode: str) -> float:
    return statistics.geometric_mean(_processes_ms(run, (cell, False), mode))


def _epoch_s(run: RawRun, cell: str, mode: str) -> float:
    """Full batches at the step that stands beside it, and the smaller last one."""
    epochs = []
    steps = _processes_ms(run, (cell, False), mode)
    for record, step in zip(run.processes(cell, mode), steps, strict=True):
        full, rest = divmod(record["num_samples"], record["batch_size"])
        last = np.median(record["last_ms"]) if rest else 0.0
        epochs.append((full * step + last) / 1e3)
    return statistics.geometric_mean(epochs)


def memory(run: RawRun, found: Finding) -> Expected:
    """The peak of the watched process."""
    mode = found.subject.partition("/")[0]
    a, b = (run.watched(c, mode, "layers", "memory.json")["peak_bytes"] for c in found.cells)
    return Expected({"mib_a": a / 2**20, "mib_b": b / 2**20, "ratio": b / a}, 1)


def parallel(run: RawRun, found: Finding) -> Expected:
    """From the ratio of times, its 95% interval, and the numbers of processes in the cells' names."""
    mode, pair = found.subject.partition("/")[0], (found.cells[0], found.cells[1])
    ratio, n = costs(run, mode)[pair].numbers["ratio"], costs(run, mode)[pair].n
    low, high = _intervals(run, mode)[pair]
    first, second = (int(cell.removeprefix("processes=")) for cell in pair)
    each = first / second
    numbers = {"speedup": 1 / ratio, "efficiency": each / ratio}
    numbers |= {"efficiency_low": each / high, "efficiency_high": each / low}
    return Expected(numbers, n, (1 / high, 1 / low))


def scaling(run: RawRun, found: Finding) -> Expected:
    """A line through the times of the sizes by relative least squares, neither part below zero; how well it
    is known, from its residuals and from how processes differ."""
    mode = found.subject.partition("/")[0]
    processes = {
        size: np.log(_processes_ms(run, (cell, False), mode))
        for cell, size in _sizes(run, found).items()
    }
    times = {size: math.exp(logs.mean()) for size, logs in processes.items()}
    fixed, each = _fit(times)
    repeats = sum(len(logs) - 1 for logs in processes.values())
    spread = sum(((logs - logs.mean()) ** 2).sum() for logs in processes.values()) / repeats
    noise = math.sqrt(spread * np.mean([1 / len(logs) for logs in processes.values()]))
    line = _Line(times, noise, repeats)
    (each_low, each_high), (fixed_low, fixed_high) = (
        (max(0.0, min(value, low)), max(value, high))
        for value, (low, high) in zip((each, fixed), line.intervals(), strict=True)
    )
    errors = {}
    for size, time in times.items() if len(times) > 2 else ():
        rest = {k: v for k, v in times.items() if k != size}
        free = _Line(rest, noise, repeats).covariance
        error = math.hypot(noise, noise / time * math.sqrt(np.array([size, 1]) @ free @ [size, 1]))
        allowed = stats.t.isf(0.025 / len(times), repeats) * error
        errors[abs(sum(np.array(_fit(rest)) * (1, size)) / time - 1)] = allowed
    worst = max(errors, default=None)
    is_beyond = any(error > max(0.25, allowed) for error, allowed in errors.items())
    if is_beyond:
        worst = max(errors, key=lambda error: error / errors[error])
    verdict = "fits" if worst is not None and worst <= 0.25 else "cannot tell"
    ends = line.ratio_ends()
    if ends is None or not each:
        ends = (fixed_low / each_high, None)
    else:
        ends = (max(0.0, min(*ends, fixed / each)), max(*ends, fixed / each))
    numbers: Json = {"fixed_ms": fixed, "per_sample_us": 1e3 * each, "largest": max(times)}
    numbers |= {"per_sample_us_low": 1e3 * each_low, "per_sample_us_high": 1e3 * each_high}
    numbers |= {"enough": max(1, 4 * fixed / each) if each else None}
    high = None if ends[1] is None else max(1, 4 * ends[1])
    numbers |= {"enough_low": max(1, 4 * ends[0]), "enough_high": high}
    numbers |= {"worst_error": worst, "allowed_error": errors.get(worst)}
    numbers |= {"fit": "does not fit" if is_beyond else verdict}
    if worst is not None and (numbers["fit"] != "fits" or errors[worst] > 1):
        numbers |= {"enough_low": None, "enough_high": None}
    return Expected(numbers, len(times), (fixed_low, fixed_high))


class _Line:
    """The line whose parts may be negative: slope first, as numpy has it."""

    def __init__(self, times: dict[int, float], noise: float, repeats: int) -> None:
        sizes, measured = np.array(list(times)), np.array(list(times.values()))
        self.parts, self.covariance = np.polyfit(sizes, measured, 1, w=1 / measured, cov="unscaled")
        squares = ((np.polyval(self.parts, sizes) / measured - 1) ** 2).sum()
        freedom = len(times) - 2
        # By an F test: either the residuals are more than noise, or both tell of it together.
        if not freedom or stats.f.sf(squares / freedom / noise**2, freedom, repeats) >= 0.05:
            squares, freedom = squares + repeats * noise**2, freedom + repeats
        self.scale = squares / freedom * stats.t.ppf(0.975, freedom) ** 2

    def intervals(self) -> list[tuple[float, float]]:
        halves = np.sqrt(self.scale * np.diag(self.covariance))
        return [(p - half, p + half) for p, half in zip(self.parts, halves, strict=True)]

    def ratio_ends(self) -> list[float] | None:
        """Where the fixed part over that per sample just differs from a ratio; None without two ends."""
        (a, b), ((aa, ab), (_, bb)) = self.parts, self.scale * self.covariance
        terms = [a**2 - aa, -2 * (a * b - ab), b**2 - bb]
        roots = np.roots(terms)
        return None if terms[0] <= 0 or np.iscomplex(roots).any() else [float(r) for r in roots]


def _fit(times: dict[int, float]) -> tuple[float, float]:
    sizes, measured = np.array(list(times)), np.array(list(times.values()))
    rows = np.stack((1 / measured, sizes / measured), axis=1)
    found = optimize.lsq_linear(rows, np.ones(len(sizes)), (0, np.inf), method="bvls", tol=1e-14)
    return float(found.x[0]), float(found.x[1])


def _sizes(run: RawRun, found: Finding) -> dict[str, int]:
    settings = {cell["id"]: cell["settings"] for cell in run.study["cells"]}
    return {cell: settings[cell]["batch_size"] for cell in found.cells}


def _by_size(run: RawRun, found: Finding) -> dict[int, Json]:
    about = str(found.numbers["of_mode"]), "operators", "operators.json"
    return {size: run.watched(cell, *about) for cell, size in _sizes(run, found).items()}


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
    numbers = {"of_mode": found.numbers["of_mode"], "share_of": "step", "first_a": first}
    shares = {"share_a": small.get(top, 0.0), "share_b": large[top], "first_share_a": small[first]}
    return Expected(numbers | shares, 1)


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
    numbers = {"of_mode": found.numbers["of_mode"], "samples": b / a}  # type: ignore[operator]
    numbers |= {"average_us_a": averages[a], "average_us_b": averages[b]}
    return Expected(numbers | {"time": averages[b] / averages[a]}, 1)


def optimizer_share(run: RawRun, found: Finding) -> Expected:
    """Of all phases, medians over processes of their mean marked steps."""
    mode = found.subject.partition("/")[0]
    shares = {}
    for cell, size in _sizes(run, found).items():
        records = run.processes(cell, mode)
        names = records[0]["phases_ms"]
        marked = {n: np.median([np.mean(r["phases_ms"][n]) for r in records]) for n in names}
        shares[size] = marked["optimizer"] / sum(marked.values())
    numbers = {"share_a": shares[min(shares)], "share_b": shares[max(shares)]}
    return Expected(numbers, min(len(run.processes(cell, mode)) for cell in found.cells))


def unstable(run: RawRun, found: Finding) -> Expected:
    """Times known to no better than 10%, in the order of the cells, and ratios to no better than 5%."""
    off, num_measured, widths = [], 0, []
    for cell in run.cells:
        for mode in MODES:
            for again in (False, True):
                if records := run.processes(cell, mode, again=again):
                    num_measured += 1
                    times = _processes_ms(run, (cell, again), mode)
                    variance, freedom = _noise(run, (cell, again), mode)
                    spread = stats.t.ppf(0.975, freedom) * math.sqrt(2 * variance / len(times))
                    if math.expm1(spread) > 0.1:
                        off.append((math.expm1(spread), *_reason(records, np.array(times))))
    for mode in MODES:
        for pair, one in costs(run, mode).items():
            low, high = _intervals(run, mode)[pair]
            assert one.interval is not None
            widths.append(math.sqrt(high / low) - 1)
    worst = max(off, default=(None, None, None))
    wide = [width for width in widths if width > 0.05]
    numbers = {"num_unstable": len(off), "num_measured": num_measured, "limit": 0.1}
    numbers |= {"num_wide": len(wide), "num_ratios": len(widths), "ratio_limit": 0.05}
    numbers |= dict(zip(("worst", "reason", "reason_value"), worst, strict=True))
    # Of two minutes, which is what was allowed.
    numbers["minutes"] = math.ceil(1.25 * 2 * (max(widths) / 0.05) ** 2)
    return Expected(numbers | {"worst_ratio": max(widths)}, len(off) + len(wide))


def _noise(run: RawRun, row: tuple[str, bool], mode: str) -> tuple[float, float]:
    """Variance of a log between processes, and its freedom: its own, or if less the mean of all settings
    that the same benches timed, of which they share a part."""
    benches = {
        (cell, again): [r["bench"] for r in run.processes(cell, mode, again=again)]
        for cell in run.cells
        for again in (False, True)
    }
    rows = [each for each in benches if benches[each] == benches[row]]
    logs = {each: np.log(_processes_ms(run, each, mode)) for each in rows}
    freedom, own = len(logs[row]) - 1, np.var(logs[row], ddof=1)
    of_all = np.mean([np.var(each, ddof=1) for each in logs.values()])
    if own > of_all:
        return own, freedom
    alike = np.var(sum(logs.values()) / len(logs), ddof=1)
    parts = {alike: freedom, of_all - alike: freedom * max(1, len(rows) - 1)}
    return of_all, of_all**2 / sum(part**2 / of for part, of in parts.items())


def _reason(records: list[Json], process_ms: np.ndarray) -> tuple[str, float]:
    if (others := max(r["load"]["others_cores"] for r in records)) > 0.2:
        return "others_busy", others
    return "processes_differ", max(process_ms) / min(process_ms) - 1


def undecided(run: RawRun, found: Finding) -> Expected:
    """Everything that was tested and stayed open."""
    metrics = SUBJECTS if run.study["learn"] else ()
    learn = [one for metric in metrics for one in effects(run, metric).values()]
    modes = MODES if run.study["cost"] else ()
    others = [one for mode in modes for one in costs(run, mode).values()]
    if run.study["learn"]:
        others += failure_rates(run).values()
        for metric in run.study["targets"]:
            others += time_differences(run, metric).values()
    tested = learn + others
    open_learn = [one for one in learn if one.verdict == "cannot tell"]
    num_open = sum(one.verdict == "cannot tell" for one in tested)
    needed = [n for one in open_learn if isinstance(n := one.numbers["seeds_needed"], Within)]
    numbers = {"num_open": num_open, "num_tested": len(tested), **_causes(learn, others)}
    numbers["most_seeds"] = max((one.n for one in open_learn), default=None)
    numbers["seeds_needed"] = min(needed, key=lambda one: one.low, default=None)
    return Expected(numbers, num_open, verdict="cannot tell")


def _causes(learn: list[Expected], others: list[Expected]) -> Json:
    """Why each stays open: every cause once for each comparison."""
    counts = dict.fromkeys(("noise", "single", "diverged", "rates", "failed"), 0)
    for one in learn:
        if one.verdict == "cannot tell":
            few = "diverged" if one.numbers["diverged_a"] or one.numbers["diverged_b"] else "single"
            if few == "single" and one.numbers["num_failed"]:
                few = "failed"
            cause = "noise" if one.n > 1 else few
            counts["rates" if one.numbers["is_withheld"] else cause] += 1
    for one in others:
        if one.verdict == "cannot tell":
            counts["noise" if one.n > 1 else "single"] += 1
    return {f"num_{cause}": number for cause, number in counts.items()}
