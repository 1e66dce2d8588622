"""Findings as sentences. Every number comes from the finding; the words are those of the report."""

from collections.abc import Callable, Iterable

from trainlab.analyse.confounds import Confound
from trainlab.analyse.findings.finding import Finding, Kind, Number
from trainlab.analyse.findings.probes import FIRST_PERIOD
from trainlab.words import Words
from trainlab.words.numbers import (
    bare_operator,
    count,
    figure,
    level,
    metric_difference,
    metric_value,
    p_value,
    percent,
)

FAR = 2
"""A batch this many times the largest measured is beyond what a fit can tell."""
ENDED_BADLY = ("failed", "interrupted", "pending")


def sentence(found: Finding, lang: str = "en") -> str:
    """One or two sentences; what else differed between the cells is named at the end."""
    words = Words(lang)
    told = SENTENCES[found.kind](found, words)
    if not found.confounds:
        return told
    return words.sentences(told, words("also_differ", confounds=confounds_told([found], words)))


def confounds_told(found: Iterable[Finding], words: Words) -> str:
    """What else differed between the cells of some findings, each named once; empty for nothing."""
    known = dict.fromkeys(other for one in found for other in one.confounds)
    return words("list_semicolon").join(_confound(one, words) for one in known)


def _confound(one: Confound, words: Words) -> str:
    first, second = words.level(one.first), words.level(one.second)
    return words("confound", what=words.differing(one.what), first=first, second=second)


def _effect(found: Finding, words: Words) -> str:
    change, metric = _change(found, words), found.subject
    if found.numbers["mean_a"] is None or found.numbers["difference"] is None:
        return words("effect_unknown", change=change, metric=metric)

    def difference(value: float) -> str:
        return metric_difference(metric, value, words("points"))

    means = _arrow(metric_value(metric, _number(found, key)) for key in ("mean_a", "mean_b"))
    seeds = _seeds(found, words)
    mean_of = seeds if found.n == 1 else words("mean_of_seeds", seeds=seeds)
    told = {
        "effect": words("effect", change=change, metric=metric, means=means, seeds=mean_of),
        "difference": difference(_number(found, "difference")),
        "reach": _reach(found, words, difference),
    }
    if found.verdict == "different":
        return words("effect_different", **told, p=p_value(_number(found, "p")))
    if found.verdict == "equivalent":
        margin = difference(_number(found, "margin")).lstrip("+")
        return words("effect_equivalent", **told, margin=margin)
    return words.sentences(words("effect_open", **told), *_seeds_needed(found, words))


def _seeds_needed(found: Finding, words: Words) -> list[str]:
    fewest, needed = found.numbers.get("fewest_seeds"), found.numbers.get("seeds_needed")
    if isinstance(fewest, int) and found.n < fewest:
        return [words("seeds_too_few", seeds=_seeds(found, words), fewest=fewest)]
    return [words("seeds_would_do", needed=needed)] if isinstance(needed, int) else []


def _no_reset(found: Finding, words: Words) -> str:
    return words.sentences(_effect(found, words), words("no_reset_why"))


def _diverged(found: Finding, words: Words) -> str:
    median = found.numbers["median_step"]
    where = "" if median is None else words("diverged_where", step=_count(found, "median_step"))
    some = found.numbers["num_diverged"]
    return words("diverged", cell=found.cells[0], some=some, all=found.n, where=where)


def _quality(found: Finding, words: Words) -> str:
    told = {
        "cell": found.cells[0],
        "all": found.n,
        "metric": found.subject,
        "target": metric_value(found.subject, _number(found, "target")),
    }
    if not found.numbers["num_reached"]:
        return words("quality_none", **told)
    return words(
        "quality",
        **told,
        some=found.numbers["num_reached"],
        epochs=_count(found, "median_epoch"),
        seconds=_figure(found, "median_s"),
    )


def _cost(found: Finding, words: Words) -> str:
    mode, floor = _mode(found), found.numbers["noise_floor"]
    cost = words(
        f"cost_of_{mode}",
        change=_change(found, words),
        step=words.step(mode),
        times=_arrow(_figure(found, key) for key in ("sample_us_a", "sample_us_b")),
        batches=_arrow(_figure(found, key) for key in ("step_ms_a", "step_ms_b")),
        epochs=_arrow(_figure(found, key) for key in ("epoch_s_a", "epoch_s_b")),
        ratio=_figure(found, "ratio"),
        reach=_reach(found, words),
    )
    noise = "" if floor is None else words("cost_noise", floor=_percent(found, "noise_floor"))
    verdict = words(f"mark_{(found.verdict or '').replace(' ', '_')}")
    told = words("cost_verdict", cost=cost, verdict=verdict, noise=noise)
    needed = found.numbers["processes_needed"]
    if found.verdict != "cannot tell" or not isinstance(needed, int):
        return told
    return words.sentences(told, words("processes_would_do", needed=needed))


def _memory(found: Finding, words: Words) -> str:
    return words(
        "memory_change",
        change=_change(found, words),
        step=words.step(_mode(found)),
        sizes=_arrow(_figure(found, key) for key in ("mib_a", "mib_b")),
        ratio=_figure(found, "ratio"),
    )


def _scaling(found: Finding, words: Words) -> str:
    mode, at = _mode(found), _at(found, words)
    is_checked = found.numbers["worst_error"] is not None
    worst = _percent(found, "worst_error") if is_checked else ""
    if found.numbers["fit"] == "does not fit":
        return words("scaling_unfit", mode=words.mode(mode), at=at, worst=worst)
    told = words(
        "scaling_fit",
        step=words.capital(words.step(mode)),
        at=at,
        fixed=_figure(found, "fixed_ms"),
        each=_figure(found, "per_sample_us"),
        check=words("scaling_checked", worst=worst) if is_checked else words("scaling_unchecked"),
    )
    enough, largest = found.numbers["enough"], _number(found, "largest")
    if enough is None or _number(found, "enough") > FAR * largest:
        return words.sentences(told, words("scaling_beyond", largest=_count(found, "largest")))
    return words.sentences(told, words("scaling_enough", enough=_figure(found, "enough", 2)))


def _dominates(found: Finding, words: Words) -> str:
    first = str(found.numbers["first_a"])
    told = _batches(found, words) | {
        "share_a": _percent(found, "share_a"),
        "share_b": _percent(found, "share_b"),
    }
    if first == found.subject:
        return words("dominates_both", **told)
    other_share = _percent(found, "first_share_a")
    return words("dominates_one", **told, other=bare_operator(first), other_share=other_share)


def _growth(found: Finding, words: Words) -> str:
    return words(
        "growth",
        **_batches(found, words),
        averages=_arrow(_figure(found, key) for key in ("average_us_a", "average_us_b")),
        time=_figure(found, "time", 2),
        work=_figure(found, "work", 2),
    )


def _batches(found: Finding, words: Words) -> dict[str, str]:
    """An operator between two batch sizes."""
    first, second = (level(one) for one in found.levels)
    return {
        "mode": words.mode(str(found.numbers["mode"])),
        "at": _at(found, words),
        "operator": bare_operator(found.subject),
        "first": first,
        "second": second,
    }


def _optimizer_share(found: Finding, words: Words) -> str:
    first, second = (level(one) for one in found.levels)
    return words(
        "optimizer_share",
        share_a=_percent(found, "share_a"),
        share_b=_percent(found, "share_b"),
        step=words.step(_mode(found)),
        at=_at(found, words),
        first=first,
        second=second,
    )


def _vanishing(found: Finding, words: Words) -> str:
    return words("gradient_vanishes", **_gradient(found, words))


def _exploding(found: Finding, words: Words) -> str:
    if "num_not_finite" in found.numbers:
        return words(
            "gradient_not_finite",
            cell=found.cells[0],
            layer=found.subject,
            some=found.numbers["num_not_finite"],
            all=found.n,
            step=_count(found, "median_step"),
        )
    grew = found.numbers["compared_with"] == FIRST_PERIOD
    return words("gradient_grew" if grew else "gradient_explodes", **_gradient(found, words))


def _gradient(found: Finding, words: Words) -> dict[str, object]:
    other = found.numbers["compared_with"]
    return _layer(found, words) | {"ratio": _figure(found, "ratio"), "other": other}


def _accumulation(found: Finding, words: Words) -> str:
    return words(
        "gradient_accumulates",
        **_layer(found, words),
        times=_figure(found, "times"),
        first=_count(found, "first_step"),
        last=_count(found, "last_step"),
        exponent=_figure(found, "exponent"),
    )


def _dead_units(found: Finding, words: Words) -> str:
    share, epoch = _percent(found, "share"), found.numbers["epoch"]
    return words("units_dead", **_layer(found, words), share=share, epoch=epoch)


def _update_ratio(found: Finding, words: Words) -> str:
    return words(
        f"update_{found.numbers['side']}",
        **_layer(found, words),
        ratio=_figure(found, "ratio"),
        low=_figure(found, "healthy_low"),
        high=_figure(found, "healthy_high"),
    )


def _layer(found: Finding, words: Words) -> dict[str, object]:
    """What every finding of a probe tells."""
    return {
        "cell": found.cells[0],
        "layer": found.subject,
        "seeds": _seeds(found, words),
        "reach": _reach(found, words),
    }


def _unstable(found: Finding, words: Words) -> str:
    return words(
        "unstable",
        some=found.numbers["num_unstable"],
        all=found.numbers["num_measured"],
        cells=words.listed(found.cells),
        warning=words.warning(str(found.numbers["warning"])),
    )


def _undecided(found: Finding, words: Words) -> str:
    numbers = found.numbers
    told = words("undecided", some=numbers["num_open"], all=numbers["num_tested"])
    fewest, seeds = numbers["fewest_seeds"], numbers["seeds"]
    if not isinstance(fewest, int) or not isinstance(seeds, int) or seeds >= fewest:
        return told
    few = words("undecidable", seeds=_num_seeds(seeds, words), fewest=fewest)
    return words.sentences(told, few)


def _unfinished(found: Finding, words: Words) -> str:
    states = [
        words("trials_in_state", number=number, state=words.state(state))
        for state in ENDED_BADLY
        if (number := found.numbers[f"num_{state}"])
    ]
    some, planned = found.numbers["num_done"], found.numbers["num_planned"]
    return words("unfinished", some=some, all=planned, states=words.listed(states))


def _change(found: Finding, words: Words) -> str:
    """`batch_size 1 → 64`, or the cells' own names."""
    if found.levels == (None, None):
        return _arrow(found.cells)
    return f"{_factor(found)} {_arrow(level(one) for one in found.levels)}{_at(found, words)}"


def _at(found: Finding, words: Words) -> str:
    """` (at lr=0.1)`: what the cells of a grid share, so which of several such findings it is."""
    own = f"{_factor(found)}="
    rest = [p for p in found.cells[1].split(",") if p != "base" and not p.startswith(own)]
    return words("at", rest=words.listed(rest)) if rest else ""


def _factor(found: Finding) -> str:
    return (found.factor or "").removeprefix("model.")


def _mode(found: Finding) -> str:
    return found.subject.partition("/")[0]


def _arrow(parts: Iterable[str]) -> str:
    return " → ".join(parts)


def _reach(found: Finding, words: Words, told: Callable[[float], str] = figure) -> str:
    """The 95 % interval, where there is one."""
    if found.interval is None:
        return ""
    return words("reach", low=told(found.interval.low), high=told(found.interval.high))


def _seeds(found: Finding, words: Words) -> str:
    return _num_seeds(found.n, words)


def _num_seeds(number: int, words: Words) -> str:
    return words("one_seed") if number == 1 else words("num_seeds", number=number)


def _figure(found: Finding, key: str, digits: int = 3) -> str:
    return figure(_number(found, key), digits)


def _count(found: Finding, key: str) -> str:
    return count(_number(found, key))


def _percent(found: Finding, key: str) -> str:
    return percent(_number(found, key))


def _number(found: Finding, key: str) -> float:
    value: Number = found.numbers[key]
    assert isinstance(value, int | float)
    return value


SENTENCES: dict[Kind, Callable[[Finding, Words], str]] = {
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
