"""What learn trials show, computed again from their raw files."""

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
from raw_run import Expected, Json, Pair, RawRun, Within, read
from rederived_contrasts import Row, Table, family
from scipy import stats

from trainlab.analysis.finding import Finding

SUBJECTS = ("test/accuracy", "test/loss", "train/loss")
LEVEL = 0.05


def _table(run: RawRun, metric: str) -> Table:
    """Finite values of every cell that has one and can be compared."""
    cells = [c["id"] for c in run.study["cells"] if run.has_like_seeds(c)] or ["base"]
    values = {
        c: {s: v for s, v in run.values(c, metric).items() if math.isfinite(v)} for c in cells
    }
    return {cell: by_seed for cell, by_seed in values.items() if by_seed}


def _resolution(run: RawRun, metric: str) -> float:
    sizes = [t["data"]["num_test"] for t in run.trials if t["kind"] == "learn" and t["data"]]
    return 1 / min(sizes) if metric == "test/accuracy" and sizes else 0.0


def effect(run: RawRun, found: Finding) -> Expected:
    """Paired by seed; decided with all other comparisons of the same metric."""
    return effects(run, found.subject)[found.cells[0], found.cells[1]]


@lru_cache
def effects(run: RawRun, metric: str) -> dict[Pair, Expected]:
    """One family."""
    table = _table(run, metric)
    pairs = [pair for pair in run.pairs if {*pair} <= table.keys()]
    rows: list[Row] = [{a: -1.0, b: 1.0} for a, b in pairs]
    made = dict(zip(pairs, family(table, rows, _resolution(run, metric)), strict=True))
    both = [pair for pair in run.pairs if all(run.learned(cell) for cell in pair)]
    return {pair: _effect(run, pair, metric, made.get(pair), len(pairs)) for pair in both}


def _effect(run: RawRun, pair: Pair, metric: str, made: Json | None, num_compared: int) -> Expected:
    first, second = (run.values(cell, metric) for cell in pair)
    shared = sorted(first.keys() & second.keys())
    seeds = [s for s in shared if math.isfinite(first[s]) and math.isfinite(second[s])]
    a, b = (np.array([side[s] for s in seeds]) for side in (first, second))
    failed = [sum(not math.isfinite(v) for v in side.values()) for side in (first, second)]
    margin = run.study["margins"].get(metric)
    numbers: Json = dict.fromkeys(
        ("mean_a", "mean_b", "difference", "seeds_needed", "detectable", "std", "p")
    )
    interval, verdict, confidence, withheld = None, "cannot tell", 0.95, False
    if len(seeds):
        numbers |= {"mean_a": a.mean(), "mean_b": b.mean(), "difference": (b - a).mean()}
    if made is not None:
        value, widths = made["value"], made["widths"]
        assert not widths[0] < abs(value) < widths[1], "too near to the limit to be a test"
        if abs(value) > widths[1]:
            verdict = "different"
        elif margin and abs(value) + made["widths_90"][1] < margin:
            verdict, widths, confidence = "equivalent", made["widths_90"], 0.90
            if failed[0] != failed[1]:
                withheld, verdict, widths, confidence = True, "cannot tell", made["widths"], 0.95
        interval, numbers["p"] = _ends(value, widths), _near(made["p"])
        numbers["std"] = made["std"]
        numbers["detectable"] = _detectable(made)
        if (a == b).all():
            interval, verdict, numbers["p"] = None, "identical", None
        if verdict == "cannot tell" and not withheld:
            error = made["std"] * math.sqrt(2)
            least = ((2.0 + 0.84) * error / abs(value)) ** 2
            numbers["seeds_needed"] = Within(2, 2.5 * least + 2) if least < 9000 else None
    mine = [t for t in run.trials if t["kind"] == "learn" and t["cell"] in pair]
    numbers["num_failed"] = sum(t["state"] not in ("done", "diverged") for t in mine)
    numbers |= {"confidence": confidence, "margin": margin, "is_withheld": withheld}
    numbers |= {"num_dropped": len(first.keys() ^ second.keys()), "family": num_compared}
    numbers |= {"diverged_a": failed[0], "diverged_b": failed[1]}
    numbers["num_diverged"] = len(shared) - len(seeds)
    numbers["is_objective"] = metric == SUBJECTS[0]
    return Expected(numbers, len(seeds), interval, verdict)


def _ends(value: float, widths: tuple[float, float]) -> tuple[Within, ...]:
    """Of an interval of which simulation leaves a little open."""
    return tuple(Within(*sorted(value + sign * width for width in widths)) for sign in (-1, 1))


def _near(p: float) -> Within:
    """Of a simulation."""
    return Within(0.7 * p - 0.004, 1.3 * p + 0.004)


def _detectable(made: Json) -> Within:
    """Near the half width and 0.84 errors more, which is where normal noise has a power of 0.8."""
    error = made["std"] * math.sqrt(2 / made["n"])
    width = made["widths"][0]
    return Within(0.5 * (width + 0.84 * error), 2.0 * (width + 0.84 * error))


def failure_rate(run: RawRun, found: Finding) -> Expected:
    return failure_rates(run)[found.cells[0], found.cells[1]]


def failure_rates(run: RawRun) -> dict[Pair, Expected]:
    """Fisher's test of every pair whose cells fail at different rates."""
    rates = {}
    for pair in run.pairs:
        sides = [run.values(cell, SUBJECTS[0]) for cell in pair]
        counts = [(sum(map(math.isnan, side.values())), len(side)) for side in sides]
        if all(of for _, of in counts) and len({num / of for num, of in counts}) > 1:
            rates[pair] = counts
    expected = {}
    for pair, ((num_a, of_a), (num_b, of_b)) in rates.items():
        p = stats.fisher_exact([[num_a, of_a - num_a], [num_b, of_b - num_b]]).pvalue * len(rates)
        numbers = {"num_a": num_a, "of_a": of_a, "num_b": num_b, "of_b": of_b, "p": min(1.0, p)}
        verdict = "different" if p <= LEVEL else "cannot tell"
        expected[pair] = Expected(numbers, min(of_a, of_b), verdict=verdict)
    return expected


def best(run: RawRun, found: Finding) -> Expected:
    """The highest mean; all pairs are one family, and what the effects call different is worse too."""
    every = _table(run, found.subject)
    steady = [c for c in every if all(map(math.isfinite, run.values(c, found.subject).values()))]
    table = {cell: every[cell] for cell in steady}
    means = {cell: float(np.mean(list(values.values()))) for cell, values in table.items()}

    def ahead(cell: str, of: str) -> float:
        shared = table[cell].keys() & table[of].keys()
        return float(np.mean([table[cell][seed] - table[of][seed] for seed in shared]))

    lead = {c: np.mean([ahead(c, other) for other in table if other != c]) for c in table}
    first = max(lead, key=lambda cell: lead[cell])
    rows: list[Row] = [{a: -1.0, b: 1.0} for a, b in combinations(table, 2)]
    worse = set()
    for row, made in zip(rows, family(table, rows, _resolution(run, found.subject)), strict=True):
        if made is not None and abs(made["value"]) > made["widths"][1]:
            worse |= set(row) if first in row else set()
    for pair, one in effects(run, found.subject).items():
        if one.verdict == "different" and first in pair and {*pair} <= table.keys():
            worse |= set(pair)
    same = [c for c in table if c != first and table[c] == table[first]]
    assert not worse & {*same}
    tied = len(table) - 1 - len(worse - {first}) - len(same)
    numbers = {"num_identical": len(same), "mean": means[first], "num_cells": len(table)}
    numbers["is_known"] = True
    numbers |= {"num_tied": tied, "num_worse": len(table) - 1 - tied - len(same)}
    numbers["num_diverging"] = sum(bool(run.learned(c)) for c in run.cells) - len(table)
    assert {*found.cells[: len(same) + 1]} == {first, *same}
    return Expected(numbers, len(table[first]))


def trend(run: RawRun, found: Finding) -> Expected:
    """The slope of a line through the means, over doublings of the level where levels span enough."""
    table, cells = _table(run, found.subject), list(found.cells)
    name = found.factor or ""
    levels = [_level(run, cell, name) for cell in cells]
    doubles = min(levels) > 0 and max(levels) / min(levels) >= 4
    span = max(levels) - min(levels)
    x = np.array([math.log2(level) if doubles else level / span for level in levels])
    row = dict(zip(cells, (x - x.mean()) / ((x - x.mean()) ** 2).sum(), strict=True))
    # All trends of the study are one family: here, the same levels beside each other factor's.
    rest = dict.fromkeys(",".join(p for p in c.split(",") if not p.startswith(name)) for c in table)
    rows = [
        {c: w for c in table for own, w in row.items() if _same(c, own, name) and _at(c, where)}
        for where in rest
        if len(rest) > 1
    ] or [row]
    made = family(table, rows, _resolution(run, found.subject))[rows.index(row)]
    slope = np.polyfit(x, [np.mean(list(table[cell].values())) for cell in cells], 1)[0]
    numbers = {"slope": slope, "is_per_doubling": doubles, "num_levels": len(levels)}
    numbers |= {"lowest": min(levels), "highest": max(levels)}
    return _decided(made, numbers)


def _decided(made: Json | None, numbers: Json) -> Expected:
    """A trend or an interaction, with the interval and verdict of its family."""
    assert made is not None
    verdict = "different" if abs(made["value"]) > made["widths"][1] else "cannot tell"
    ends = _ends(made["value"], made["widths"])
    return Expected(numbers | {"p": _near(made["p"])}, made["n"], ends, verdict)


def ran_as(run: RawRun, found: Finding) -> Expected:
    """The batch size in the records of a cell's trials beside that of its settings."""
    trials = [t for t in run.trials if t["cell"] == found.cells[0]]
    assert {t["settings"]["batch_size"] for t in trials} == {found.numbers["asked"]}
    (ran,) = {t["resolved"]["batch_size"] for t in trials}
    like = {t["cell"] for t in run.trials if t["resolved"]["batch_size"] == ran}
    assert like == {*found.cells}, "in these studies nothing else varies"
    return Expected({"asked": trials[0]["settings"]["batch_size"], "ran": ran}, len(trials))


def _at(cell: str, where: str) -> bool:
    return all(part in cell.split(",") for part in where.split(",") if part)


def _same(cell: str, other: str, factor: str) -> bool:
    """Whether two cells have the same level of the factor."""
    levels = ({p for p in c.split(",") if p.startswith(f"{factor}=")} for c in (cell, other))
    return next(levels) == next(levels)


def _level(run: RawRun, cell: str, factor: str) -> float:
    """As it ran: a batch may be larger than the data."""
    if factor == "batch_size":
        return float(next(t["resolved"][factor] for t in run.trials if t["cell"] == cell))
    return float(next(one["levels"][factor] for one in run.study["cells"] if one["id"] == cell))


def interaction(run: RawRun, found: Finding) -> Expected:
    """The effect of one change at two levels of the other factor."""
    table = _table(run, found.subject)
    cells = run.study["cells"]
    levels = {tuple(cell["levels"].values()): cell["id"] for cell in cells}
    first = tuple(cells[0]["levels"].values())
    rows: list[Row] = []
    index = -1
    for place, cell in sorted(levels.items(), key=str):
        changed = [i for i, level in enumerate(place) if level != first[i]]
        if len(changed) != 2:
            continue
        one, other = (
            tuple(first[i] if i == keep else level for i, level in enumerate(place))
            for keep in reversed(changed)
        )
        rows.append({cell: 1.0, levels[one]: -1.0, levels[other]: -1.0, levels[first]: 1.0})
        index = len(rows) - 1 if cell == found.cells[1] else index
    made = family(table, rows, _resolution(run, found.subject))[index]
    said = {name: found.numbers[name] for name in ("other_factor", "change_a", "change_b")}
    return _decided(made, {**said, "difference": made["value"] if made else None})


def sampling(run: RawRun, found: Finding) -> Expected:
    """The binomial error of the highest mean accuracy."""
    size = round(1 / _resolution(run, found.subject))
    means = [np.mean(list(values.values())) for values in _table(run, found.subject).values()]
    value = float(max(means))
    share = (value * size + 2) / (size + 4)
    half = 1.96 * math.sqrt(2 * share * (1 - share) / size)
    halves = {"half_width": half, "half_width_difference": half * math.sqrt(2)}
    return Expected(halves | {"num_samples": size, "value": value}, size)


def confused_classes(run: RawRun, found: Finding) -> Expected:
    """The matrices of all seeds of the best cell, added up."""
    steady = {
        cell: np.mean(list(values.values()))
        for cell in run.cells
        if (values := run.values(cell, found.subject)) and np.isfinite([*values.values()]).all()
    }
    best = max(steady, key=lambda cell: steady[cell])
    assert found.cells == (best,)
    files = [run.path / "trials" / t["id"] / "confusion.json" for t in run.learned(best).values()]
    records = [read(file) for file in files]
    whole = np.sum([record["counts"] for record in records], axis=0)
    wrong = whole - np.diag(np.diag(whole))
    both = np.triu(wrong + wrong.T)
    first, second = np.unravel_index(both.argmax(), both.shape)
    assert (both == both.max()).sum() == 1, "which pair comes first would be chance"
    if wrong[first, second] < wrong[second, first]:
        first, second = second, first
    numbers = {"first": str(first), "second": str(second), "num_settings": len(run.cells)}
    numbers |= {"num_taken": wrong[first, second], "num_other_way": wrong[second, first]}
    numbers |= {"num_first": whole[first].sum(), "num_second": whole[second].sum()}
    numbers |= {"num_wrong": wrong.sum(), "share": both.max() / wrong.sum()}
    numbers |= {"num_tested": whole.sum(), "num_samples": records[0]["num_samples"]}
    return Expected(numbers, len(records))


def seed_spread(run: RawRun, found: Finding) -> Expected:
    """The standard deviation over seeds, with the interval of chi square; that of a ratio is F's."""

    def std(cell: str) -> float:
        return float(np.std(list(run.values(cell, found.subject).values()), ddof=1))

    cell = found.cells[0]
    own, n = std(cell), len(run.values(cell, found.subject))
    part = next(c["levels"]["seed_parts"] for c in run.study["cells"] if c["id"] == cell)
    numbers: Json = {"part": part, "std": own, "ratio": None, "ratio_low": None, "ratio_high": None}
    if part != "all" and own > 1e-12:
        whole = std("seed_parts=all")
        of_f = stats.f(len(run.values("seed_parts=all", found.subject)) - 1, n - 1)
        low, high = (own**2 / whole**2 * of_f.ppf(level) for level in (0.025, 0.975))
        numbers |= {"ratio": own**2 / whole**2, "ratio_low": low, "ratio_high": high}
    if own < 1e-12:
        return Expected(numbers | {"std": 0.0}, n)
    low, high = own * np.sqrt((n - 1) / stats.chi2.ppf([0.975, 0.025], n - 1))
    return Expected(numbers, n, (low, high))


def diverged(run: RawRun, found: Finding) -> Expected:
    """Trials of a cell whose loss was not finite."""
    ended = run.learned(found.cells[0]).values()
    steps = [t["diverged_at_step"] for t in ended if t["state"] == "diverged"]
    return Expected({"num_diverged": len(steps), "median_step": np.median(steps)}, len(ended))


def not_finite(run: RawRun, found: Finding) -> Expected:
    """Trials of a cell that trained to their end without a finite value of the metric."""
    ended = run.learned(found.cells[0]).values()
    values = [t["final"][found.subject] for t in ended if t["state"] == "done"]
    return Expected({"num_not_finite": values.count(None)}, len(ended))


def _first_met(run: RawRun, cell: str, metric: str) -> list[tuple[float, float]]:
    """The first epoch that met the target and the seconds until then, of each trial that ended."""
    target, sign = run.study["targets"][metric], -1 if metric.endswith("loss") else 1
    found = []
    for trial in run.learned(cell).values():
        if trial["state"] in ("done", "diverged"):
            lines = [one for one in run.lines(trial, "curve.jsonl") if one["kind"] == "epoch"]
            met = [one for one in lines if sign * one[metric] >= sign * target]
            found.append((met[0]["epoch"], met[0]["time_s"]) if met else (math.inf, math.inf))
    return found


def _median(times: list[float]) -> float | None:
    median = float(np.median(times))
    return median if math.isfinite(median) else None


def time_to_target(run: RawRun, found: Finding) -> Expected:
    """The first epoch of each trial that met the target."""
    epochs, seconds = zip(*_first_met(run, found.cells[0], found.subject), strict=True)
    medians = {"median_epoch": _median(epochs), "median_s": _median(seconds)}
    num_reached, target = sum(map(math.isfinite, epochs)), run.study["targets"][found.subject]
    return Expected({"target": target, "num_reached": num_reached, **medians}, len(epochs))


def time_difference(run: RawRun, found: Finding) -> Expected:
    return time_differences(run, found.subject)[found.cells[0], found.cells[1]]


@lru_cache
def time_differences(run: RawRun, metric: str) -> dict[Pair, Expected]:
    """Mann and Whitney's test, exact by all permutations; never is later than any epoch."""
    tested = {}
    for pair in run.pairs:
        a, b = ([float(one) for one, _ in _first_met(run, cell, metric)] for cell in pair)
        if a and b and len({*a, *b}) > 1:
            tested[pair] = a, b
    return {
        pair: _time_difference(a, b, run.study["targets"][metric], len(tested))
        for pair, (a, b) in tested.items()
    }


def _time_difference(a: list[float], b: list[float], target: float, num_tested: int) -> Expected:
    ranks = stats.rankdata([*a, *b])
    middle = len(a) * (len(ranks) + 1) / 2

    def away(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return np.abs(x.sum(axis=axis) - middle)

    sides = ranks[: len(a)], ranks[len(a) :]
    asked = {"alternative": "greater", "n_resamples": 2000, "rng": np.random.default_rng(1)}
    p = stats.permutation_test(sides, away, vectorized=True, **asked).pvalue * num_tested
    # Or chance decides, in a test that is about all but that.
    assert not 0.6 * p - 0.01 < LEVEL < 1.4 * p + 0.01, p
    numbers = {"target": target, "epoch_a": _median(a), "epoch_b": _median(b)}
    numbers |= {"never_a": a.count(math.inf), "never_b": b.count(math.inf)}
    numbers["p"] = Within(min(1.0, 0.6 * p - 0.01), min(1.0, 1.4 * p + 0.01))
    verdict = "different" if p <= LEVEL else "cannot tell"
    return Expected(numbers, min(len(a), len(b)), verdict=verdict)


def unfinished(run: RawRun, found: Finding) -> Expected:
    """How all trials ended."""
    states = [trial["state"] for trial in run.trials]
    done = states.count("done") + states.count("diverged")
    bad = ("failed", "interrupted", "running", "pending")
    numbers = {f"num_{state}": states.count(state) for state in bad}
    numbers |= {"num_done": done, "num_planned": len(states), "num_damaged": 0}
    return Expected(numbers, done)
