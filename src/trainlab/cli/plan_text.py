"""A study's plan in words, before the long part begins."""

import platform
import statistics
from collections.abc import Iterator
from itertools import chain
from typing import Any

from rich.console import Console
from rich.text import Text

from trainlab.analysis.finding import num_seeds
from trainlab.analysis.prospects import Prospect, Range, expected_s, prospects
from trainlab.lab.run_progress import duration_text
from trainlab.plan import plan, trials_of
from trainlab.record.run_folder import RUNS
from trainlab.report.wrapping import wrapped
from trainlab.spec import Study
from trainlab.spec.question import FIRST_LOOK
from trainlab.spec.search import SETTINGS, Dimension
from trainlab.spec.study import short_name
from trainlab.words import Words
from trainlab.words.numbers import metric_difference

MOST_CELLS = 12
"""Cells that are named; of further ones only the number is given."""


def plan_json(study: Study) -> dict[str, Any]:
    """The plan for programs: settings and levels of every cell, of a script its arguments but for the seed;
    and the trials by group."""
    script, cells = study.script, list[dict[str, Any]]()
    for cell in study.all_cells:
        asked: dict[str, Any] = {"settings": cell.settings}
        if script is not None:
            asked = {"arguments": script.arguments_for(cell.settings.script, None)}
        cells.append({"id": cell.id, "levels": cell.levels, **asked})
    groups = [group.ids for group in plan(study)]
    about = {"name": study.name, "workload": study.workload}
    return {**about, "cells": cells, "seeds": study.seeds, "groups": groups}


def print_plan(console: Console, study: Study, words: Words, *, each_device: bool = False) -> None:
    """The cells, how many trials of which kind, and what they can show by the noise of earlier runs.
    `each_device`: every device is asked for."""
    if study.title:
        console.print(Text(words.builtin(study.title), "bold"), highlight=False)
    for line in chain(_plan_lines(study, words, each_device), _prospect_lines(study, words)):
        console.print(Text("\n".join(wrapped(line, console.width))), highlight=False)


def _plan_lines(study: Study, words: Words, each_device: bool) -> Iterator[str]:
    cells, cost = [cell.id for cell in study.all_cells], study.cost
    yield words(
        "plan_settings",
        name=study.name,
        settings=words.counted("one_setting", "num_settings", len(cells)),
        cells=words.listed(cells[:MOST_CELLS]),
        more=words("plan_more", number=len(cells) - MOST_CELLS) if len(cells) > MOST_CELLS else "",
    )
    if (search := study.search) is not None:
        spaces = (f"{short_name(o.name)} {o.text()}{_condition(o)}" for o in search.dimensions)
        number = search.settings or (None if search.budget_s else SETTINGS)
        yield words(
            "plan_search",
            number=words("plan_as_many") if number is None else str(number),
            spaces=words("list_semicolon").join(spaces),
            metric=words.metric(search.metric),
            best=search.confirm,
            seeds=num_seeds(len(study.seeds), words),
        )
    if study.same_as_base:
        yield words("plan_same_as_base", cells=words.listed(study.same_as_base))
    trials, parts = trials_of(plan(study)), list[str]()
    if study.num_learn:
        learn = words.counted("one_learn_trial", "num_learn_trials", study.num_learn)
        seeds, number = num_seeds(len(study.seeds), words), len(study.seeds)
        seeds = words("plan_seeds", seeds=seeds, number=number) if number > 1 else seeds
        parts.append(words("plan_learn", trials=learn, seeds=seeds))
    if cost is not None:
        timed = sum(trial.watch == "steps" for trial in trials)
        numbers = {"timed": timed, "profiled": len(trials) - study.num_learn - timed}
        check = more = ""
        if len(cells) > 1:
            check = words("plan_check")
            seconds, share = f"{cost.budget_s:.0f}", f"{100 * cost.ratio_within:g}%"
            more = words("plan_timing", seconds=seconds, share=share)
        parts.append(words("plan_cost", **numbers, check=check, more=more))
    line = words("list_semicolon").join(parts) + words("full_stop").strip()
    yield words.sentences(line, words("plan_each_device")) if each_device else line
    if (expected := expected_s(study, RUNS, platform.node())) is not None:
        yield words("plan_time", time=duration_text(expected, words))


def _condition(one: Dimension) -> str:
    return "" if one.only_if is None else " if {}={}".format(*one.only_if)


def _prospect_lines(study: Study, words: Words) -> Iterator[str]:
    """What the seeds can show, and what they cannot."""
    if not study.learn or len(study.all_cells) < 2:
        return
    if len(study.seeds) < 2:
        yield words("plan_one_seed")
        return
    found = prospects(study, RUNS)
    if study.looks:
        *others, final = map(str, study.looks)
        looks = words("name_and", first=words("list_names").join(others), last=final)
        is_first = study.looks[0] == FIRST_LOOK
        fewest = words("plan_looks_fewest", number=FIRST_LOOK) if is_first else ""
        yield words("plan_looks", looks=looks if others else final, fewest=fewest)
    for one in found[:1]:
        first, last, known = one.first, one.last, one.noise
        seeds, noise = num_seeds(first.num_seeds, words), words("plan_power")
        if known is not None:
            noise = words(
                "plan_noise_known" if known.num_trials is None else "plan_noise_earlier",
                amount=_range(one.metric, first.differences, words),
                metric=words.metric(one.metric),
                number=known.num_trials,
            )
        yield words("plan_finds", seeds=seeds, stds=f"{first.difference_stds:.1f}", noise=noise)
        if last.num_seeds > first.num_seeds:
            most = _range(one.metric, last.differences, words)
            amount = words("plan_amount", amount=most) if most else ""
            seeds, stds = num_seeds(last.num_seeds, words), f"{last.difference_stds:.1f}"
            yield words("plan_most_seeds", seeds=seeds, stds=stds, amount=amount)
    yield from (_margin_line(one, one.margin, words) for one in found if one.margin is not None)


def _margin_line(one: Prospect, margin: float, words: Words) -> str:
    spread = ""
    if one.noise is not None and one.last.margins is not None:
        least, most = one.last.margins
        shown = (
            "plan_can" if most <= margin else "plan_cannot" if least > margin else "plan_can_some"
        )
        key = "plan_spread_known" if one.noise.num_trials is None else "plan_spread_earlier"
        std = _amount(one.metric, statistics.median(one.noise.stds), words)
        spread = words(key, std=std, verdict=words(shown))
    return words(
        "plan_margin",
        metric=words.metric(one.metric),
        margin=_amount(one.metric, margin, words),
        most=_amount(one.metric, margin / one.last.margin_stds, words),
        spread=spread,
    )


def _range(metric: str, values: Range | None, words: Words) -> str:
    low, high = (_amount(metric, value, words) for value in values) if values else ("", "")
    return high if low == high else words("size_by_pair", low=low, high=high)


def _amount(metric: str, value: float, words: Words) -> str:
    return metric_difference(metric, value, words("points")).lstrip("+")
