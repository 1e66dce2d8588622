"""What watching a script has shown, computed again from watched.json."""

from statistics import fmean, median

from raw_run import Expected, Json, RawRun, read

from trainlab.analysis.finding import Finding

MIB = 1 << 20


def _watched(run: RawRun, found: Finding) -> list[Json]:
    trials = (t for t in run.trials if t["kind"] == "learn" and t["cell"] in found.cells)
    return [read(run.path / "trials" / t["id"] / "watched.json") for t in trials]


def _expected(run: RawRun, found: Finding, **numbers: object) -> Expected:
    own = {"num_cells": len(run.study["cells"]) or 1, **numbers}
    return Expected(numbers=own, n=len(_watched(run, found)))


def _steps(one: Json) -> list[float]:
    return [sum(parts) for parts in zip(*one["steps_ms"].values(), strict=True)]


def _middle(one: Json, name: str) -> tuple[float, float]:
    """A part and the whole, means over the steps between the quartiles."""
    rows = sorted(zip(_steps(one)[1:], one["steps_ms"][name][1:], strict=True))
    cut = len(rows) // 4
    middle = rows[cut : len(rows) - cut]
    return fmean(own for _, own in middle), fmean(whole for whole, _ in middle)


def time(run: RawRun, found: Finding) -> Expected:
    """The whole, its shares, its steps, and what watching took."""
    all_runs = _watched(run, found)
    walls = [one["wall_s"] for one in all_runs]
    overheads = [
        (one["num_calls"] * one["call_us"] + one["num_marks"] * one["mark_us"]) / 1e6
        for one in all_runs
    ]
    apart = {
        name: [one["parts_s"].get(name, 0.0) / one["wall_s"] for one in all_runs]
        for name in ("startup", "evaluation")
    }
    trained = [1 - a - b for a, b in zip(*apart.values(), strict=True)]
    return _expected(
        run,
        found,
        wall_s=median(walls),
        low_s=min(walls),
        high_s=max(walls),
        startup_share=median(apart["startup"]),
        training_share=median(trained),
        evaluation_share=median(apart["evaluation"]),
        step_ms=median(median(_steps(one)[1:]) for one in all_runs),
        first_step_ms=median(_steps(one)[0] for one in all_runs),
        overhead_s=median(overheads),
        overhead_share=median(a / b for a, b in zip(overheads, walls, strict=True)),
        instruments_s=median(one["instruments_s"] for one in all_runs),
        num_updates=round(median(one["num_steps"] for one in all_runs)),
        cut="",
    )


def part(run: RawRun, found: Finding) -> Expected:
    """Of the run, or of its steps after the first."""
    all_runs, name = _watched(run, found), found.subject
    if name in ("evaluation", "startup"):
        of, times = "run", [one["parts_s"][name] for one in all_runs]
        shares = [own / one["wall_s"] for own, one in zip(times, all_runs, strict=True)]
    else:
        of, steps = "step", [_middle(one, name) for one in all_runs]
        times, shares = [fmean(own for own, _ in steps)], [own / whole for own, whole in steps]
    return _expected(
        run,
        found,
        of=of,
        share=median(shares),
        low=min(shares),
        high=max(shares),
        time=median(times),
    )


def memory(run: RawRun, found: Finding) -> Expected:
    """From a tenth of the looks on to the last, of the seed in the middle."""
    grown = []
    for one in _watched(run, found):
        (first_step, first), *_, (last_step, last) = one["memory"][len(one["memory"]) // 10 :]
        updates = last_step - first_step
        grown.append(((last - first) / updates / MIB, first / MIB, last / MIB, updates))
    per_update, first_mib, last_mib, updates = sorted(grown)[len(grown) // 2]
    return _expected(
        run,
        found,
        mib_per_update=per_update,
        first_mib=first_mib,
        last_mib=last_mib,
        num_updates=updates,
    )


def seeds(run: RawRun, found: Finding) -> Expected:
    """Runs of a cell that differ in a loss or in a metric."""
    for cell in found.cells:
        trials = [t for t in run.trials if t["kind"] == "learn" and t["cell"] == cell]
        files = [read(run.path / "trials" / t["id"] / "watched.json") for t in trials]
        did = {str((one["losses"], t["final"])) for one, t in zip(files, trials, strict=True)}
        numbers = {"num_cells": len(run.study["cells"]) or 1, "num_different": len(did)}
    return Expected(numbers=numbers, n=len(trials))


def same(run: RawRun, found: Finding) -> Expected:
    """Every loss of a seed is the same in all of these cells."""
    by_seed: dict[int, set[str]] = {}
    for trial in run.trials:
        if trial["kind"] == "learn" and trial["cell"] in found.cells:
            watched = read(run.path / "trials" / trial["id"] / "watched.json")
            by_seed.setdefault(trial["seed"], set()).add(repr(watched["losses"]))
    assert all(len(losses) == 1 for losses in by_seed.values())
    is_whole = len(found.cells) == len(run.study["cells"])
    return _expected(run, found, is_whole=is_whole)


def order(run: RawRun, found: Finding) -> Expected:
    """The loader that is trained on."""
    loaders = [row for one in _watched(run, found) for row in one["loaders"]]
    trained = [row for row in loaders if row["is_trained_on"]]
    (order,) = {row["order"] for row in trained}
    assert order == "in order" or all(row["begins_alike"] for row in trained)
    passes = max(row["num_passes"] for row in trained)
    return _expected(run, found, num_passes=passes, shuffles=order != "in order")
