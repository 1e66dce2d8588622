"""Findings as English sentences. Every number comes from the finding."""

from collections.abc import Callable

from trainlab.analyse.finding import Finding, Kind, Number
from trainlab.report.numbers import (
    bare_operator,
    count,
    figure,
    level,
    metric_difference,
    metric_value,
    p_value,
    percent,
)

POINTS = "points"
FIRST_PERIOD = "its first period"
MODES = {"train": "A training step", "inference": "An inference step"}


def sentence(found: Finding) -> str:
    """One or two sentences; what else differed between the cells is named at the end."""
    told = SENTENCES[found.kind](found)
    if found.confounds:
        told += f" Beware: these also differ: {'; '.join(found.confounds)}."
    return told


def _change(found: Finding) -> str:
    """`batch_size 1 → 64`, or the cell's own name."""
    if found.levels == (None, None):
        return f"{found.cells[0]} → {found.cells[1]}"
    first, second = (level(one) for one in found.levels)
    told = f"{(found.factor or '').removeprefix('model.')} {first} → {second}"
    return f"{told}{_at(found)}"


def _at(found: Finding) -> str:
    """` (at lr=0.1)`: which of several such comparisons it is."""
    rest = _rest(found)
    return f" (at {rest})" if rest else ""


def _rest(found: Finding) -> str:
    """What both cells of a grid share, where there are other factors."""
    parts = found.cells[1].split(",")
    factor = (found.factor or "").removeprefix("model.")
    return ", ".join(part for part in parts if part != "base" and not part.startswith(f"{factor}="))


def _effect(found: Finding) -> str:
    numbers, metric = found.numbers, found.subject
    if numbers["mean_a"] is None or numbers["difference"] is None:
        return f"{_change(found)}: {metric} cannot be compared, no seed ended well in both cells."
    means = " → ".join(metric_value(metric, _number(numbers[k])) for k in ("mean_a", "mean_b"))
    start = f"{_change(found)}: {metric} {means} ({_seeds_told(found.n, 'mean of ')})"
    difference = metric_difference(metric, _number(numbers["difference"]), POINTS)
    reach = ""
    if found.interval is not None:
        low, high = (
            metric_difference(metric, v, POINTS) for v in (found.interval.low, found.interval.high)
        )
        reach = f" [95 %: {low} to {high}]"
    if found.verdict == "different":
        return f"{start}: different, by {difference}{reach}, {p_value(_number(numbers['p']))}."
    if found.verdict == "equivalent":
        margin = metric_difference(metric, _number(numbers["margin"]), POINTS).lstrip("+")
        return f"{start}: equivalent within {margin}; the difference is {difference}{reach}."
    return f"{start}: cannot tell; the difference is {difference}{reach}.{_seeds(found)}"


def _seeds(found: Finding) -> str:
    fewest, needed = found.numbers.get("fewest_seeds"), found.numbers.get("seeds_needed")
    if isinstance(fewest, int) and found.n < fewest:
        return f" With {_seeds_told(found.n)} no difference could be shown; it takes at least {fewest}."
    if isinstance(needed, int):
        return f" About {needed} seeds would settle it if the difference is real."
    return ""


def _seeds_told(count: int, before: str = "") -> str:
    return "1 seed" if count == 1 else f"{before}{count} seeds"


def _no_reset(found: Finding) -> str:
    return (
        f"{_effect(found)} Without resets the gradients of all past batches add up, so every update "
        "follows their sum instead of the current batch, and its size keeps growing."
    )


def _diverged(found: Finding) -> str:
    gone, step = found.numbers["num_diverged"], found.numbers["median_step"]
    where = "" if step is None else f", at update {count(_number(step))} (median)"
    return f"{found.cells[0]}: {gone} of {found.n} trials diverged{where}."


def _quality(found: Finding) -> str:
    target = metric_value(found.subject, _number(found.numbers["target"]))
    reached, cell = found.numbers["num_reached"], found.cells[0]
    if not reached:
        return f"{cell}: none of {found.n} trials reached {found.subject} {target}."
    epoch, seconds = _number(found.numbers["median_epoch"]), _number(found.numbers["median_s"])
    return (
        f"{cell}: {reached} of {found.n} trials reached {found.subject} {target}, "
        f"after {count(epoch)} epochs and {figure(seconds)} s (medians)."
    )


def _cost(found: Finding) -> str:
    numbers = found.numbers
    times = " → ".join(figure(_number(numbers[k])) for k in ("sample_us_a", "sample_us_b"))
    batches = " → ".join(figure(_number(numbers[k])) for k in ("step_ms_a", "step_ms_b"))
    epochs = " → ".join(figure(_number(numbers[k])) for k in ("epoch_s_a", "epoch_s_b"))
    step = MODES[found.subject.partition("/")[0]]
    ratio = f"{figure(_number(numbers['ratio']))} times"
    if found.interval is not None:
        ratio += f" [95 %: {figure(found.interval.low)} to {figure(found.interval.high)}]"
    whole = "epoch" if found.subject.startswith("train") else "pass"
    start = (
        f"{_change(found)}: {step[0].lower()}{step[1:]} takes {times} µs per sample ({batches} ms per "
        f"batch, {epochs} s per {whole}), {ratio} the time per sample"
    )
    floor = numbers["noise_floor"]
    noise = (
        ""
        if floor is None
        else f" (the same cell measured twice differs by {percent(_number(floor))})"
    )
    if found.verdict == "different":
        return f"{start}: different{noise}."
    needed = numbers["processes_needed"]
    more = f" {needed} processes per cell would settle it." if isinstance(needed, int) else ""
    if found.verdict == "equivalent":
        return f"{start}: equivalent{noise}."
    return f"{start}: cannot tell{noise}.{more}"


def _memory(found: Finding) -> str:
    sizes = " → ".join(figure(_number(found.numbers[k])) for k in ("mib_a", "mib_b"))
    step = MODES[found.subject.partition("/")[0]]
    ratio = figure(_number(found.numbers["ratio"]))
    return f"{_change(found)}: {step[0].lower()}{step[1:]} needs {sizes} MiB at its peak, {ratio} times."


def _scaling(found: Finding) -> str:
    numbers, mode = found.numbers, found.subject.partition("/")[0]
    fixed, each = figure(_number(numbers["fixed_ms"])), figure(_number(numbers["per_sample_us"]))
    start = (
        f"{MODES[mode]}{_at(found)} costs {fixed} ms whatever the batch and {each} µs per sample"
    )
    worst = numbers["worst_error"]
    if numbers["fit"] == "does not fit":
        return (
            f"Time per batch of {mode}{_at(found)} does not follow a fixed cost plus a cost per "
            f"sample: a size predicted from the others is off by up to {percent(_number(worst))}."
        )
    check = (
        "; with two sizes this cannot be checked"
        if worst is None
        else f"; each size predicted from the others is off by at most {percent(_number(worst))}"
    )
    enough = numbers["enough"]
    end = (
        ""
        if enough is None
        else f" Beyond batch {figure(_number(enough))}, doubling gains less than 10 %."
    )
    return f"{start}{check}.{end}"


def _dominates(found: Finding) -> str:
    numbers = found.numbers
    first, second = (level(one) for one in found.levels)
    shares = [percent(_number(numbers[key])) for key in ("share_a", "share_b")]
    told = (
        f"In {numbers['mode']}{_at(found)}, {bare_operator(found.subject)} takes {shares[0]} of a step "
        f"at batch {first} and {shares[1]} at batch {second}"
    )
    if numbers["first_a"] == found.subject:
        return f"{told}: it dominates at both."
    share = percent(_number(numbers["first_share_a"]))
    return f"{told}; at batch {first} {bare_operator(str(numbers['first_a']))} comes first, with {share}."


def _growth(found: Finding) -> str:
    numbers = found.numbers
    first, second = (level(one) for one in found.levels)
    averages = " → ".join(figure(_number(numbers[k])) for k in ("average_us_a", "average_us_b"))
    return (
        f"In {numbers['mode']}{_at(found)}, one {bare_operator(found.subject)} takes {averages} µs "
        f"from batch {first} to {second}: {figure(_number(numbers['time']), 2)} times the time for "
        f"{figure(_number(numbers['work']), 2)} times the work."
    )


def _optimizer_share(found: Finding) -> str:
    first, second = (level(one) for one in found.levels)
    a, b = (percent(_number(found.numbers[k])) for k in ("share_a", "share_b"))
    return (
        f"The optimizer takes {a} of a training step{_at(found)} at batch {first} and {b} at batch "
        f"{second}."
    )


def _vanishing(found: Finding) -> str:
    ratio, other = figure(_number(found.numbers["ratio"])), found.numbers["compared_with"]
    return (
        f"{found.cells[0]}: the gradient at {found.subject} is {ratio} times that at {other}, per element"
        f"{_reach(found)} ({_seeds_told(found.n)}): it vanishes on its way back."
    )


def _exploding(found: Finding) -> str:
    numbers, start = found.numbers, f"{found.cells[0]}: the gradient at {found.subject}"
    if "num_not_finite" in numbers:
        step = count(_number(numbers["median_step"]))
        some = numbers["num_not_finite"]
        return f"{start} was not finite in {some} of {found.n} trials, first at update {step} (median)."
    ratio = f"{figure(_number(numbers['ratio']))} times{_reach(found)}"
    if numbers["compared_with"] == FIRST_PERIOD:
        return f"{start} grew {ratio} while training ({_seeds_told(found.n)})."
    return f"{start} is {ratio} that at {numbers['compared_with']}, per element ({_seeds_told(found.n)})."


def _accumulation(found: Finding) -> str:
    numbers = found.numbers
    first, last = (count(_number(numbers[key])) for key in ("first_step", "last_step"))
    return (
        f"{found.cells[0]}: gradients are never reset; the norm at {found.subject} grows "
        f"{figure(_number(numbers['times']))} times from update {first} to {last}, as the "
        f"{figure(_number(numbers['exponent']))} power of the step{_reach(found)} ({_seeds_told(found.n)})."
    )


def _dead_units(found: Finding) -> str:
    share, epoch = percent(_number(found.numbers["share"])), found.numbers["epoch"]
    return (
        f"{found.cells[0]}: {share} of the units of {found.subject} never fired in epoch {epoch} "
        f"({_seeds_told(found.n)})."
    )


def _update_ratio(found: Finding) -> str:
    numbers = found.numbers
    ratio = figure(_number(numbers["ratio"]))
    low, high = (figure(_number(numbers[key])) for key in ("healthy_low", "healthy_high"))
    return (
        f"{found.cells[0]}: an update of {found.subject} is {ratio} of the weight"
        f"{_reach(found)}, {numbers['side']} the healthy {low} to {high} ({_seeds_told(found.n)})."
    )


def _reach(found: Finding) -> str:
    if found.interval is None:
        return ""
    return f" [95 %: {figure(found.interval.low)} to {figure(found.interval.high)}]"


def _unstable(found: Finding) -> str:
    numbers = found.numbers
    return (
        f"{numbers['num_unstable']} of {numbers['num_measured']} cost measurements are unstable "
        f"({', '.join(found.cells)}), the first because {numbers['warning']}."
    )


def _undecided(found: Finding) -> str:
    numbers = found.numbers
    told = f"{numbers['num_open']} of {numbers['num_tested']} comparisons cannot be told from noise"
    fewest, seeds = numbers["fewest_seeds"], numbers["seeds"]
    if isinstance(fewest, int) and isinstance(seeds, int) and seeds < fewest:
        return f"{told}. {seeds} seeds can never show a difference here; at least {fewest} can."
    return f"{told}."


def _unfinished(found: Finding) -> str:
    numbers = found.numbers
    parts = [
        f"{numbers[f'num_{state}']} {state}"
        for state in ("failed", "interrupted", "pending")
        if numbers[f"num_{state}"]
    ]
    return (
        f"Only {numbers['num_done']} of {numbers['num_planned']} trials ended well "
        f"({', '.join(parts)}): what follows is from those."
    )


def _number(value: Number) -> float:
    assert isinstance(value, int | float)
    return value


SENTENCES: dict[Kind, Callable[[Finding], str]] = {
    "effect": _effect,
    "no_reset": _no_reset,
    "diverged": _diverged,
    "quality": _quality,
    "cost": _cost,
    "memory": _memory,
    "scaling": _scaling,
    "dominates": _dominates,
    "growth": _growth,
    "optimizer_share": _optimizer_share,
    "vanishing_gradient": _vanishing,
    "exploding_gradient": _exploding,
    "accumulation": _accumulation,
    "dead_units": _dead_units,
    "update_ratio": _update_ratio,
    "unstable": _unstable,
    "undecided": _undecided,
    "unfinished": _unfinished,
}
