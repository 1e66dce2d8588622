"""A study's plan in words, before the long part begins."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from trainlab.analysis.finding import num_seeds
from trainlab.analysis.prospects import Prospect, earlier_runs, prospects
from trainlab.plan import plan, trials_of
from trainlab.record.run_folder import RUNS
from trainlab.report.wrapping import wrapped
from trainlab.spec import Cell, CostSpec, Study
from trainlab.spec.question import FIRST_LOOK
from trainlab.spec.script import ScriptSpec
from trainlab.words import Words
from trainlab.words.numbers import metric_difference

MOST_CELLS = 12
"""Cells that are named; of further ones only the number is given."""


def plan_json(study: Study) -> dict[str, Any]:
    """The plan for programs: settings and levels of every cell, and the trials by group."""
    return {
        "name": study.name,
        "workload": study.workload,
        "cells": [
            {"id": cell.id, "levels": cell.levels, **_asked(cell, study.script)}
            for cell in study.all_cells
        ],
        "seeds": list(study.seeds),
        "groups": [list(group.ids) for group in plan(study)],
    }


def _asked(cell: Cell, script: ScriptSpec | None) -> dict[str, Any]:
    """The settings of a cell; of a script, its arguments, but for the seed."""
    if script is None:
        return {"settings": cell.settings.model_dump()}
    return {"arguments": list(script.arguments_for(cell.settings.script, None))}


def print_plan(
    console: Console, study: Study, words: Words, *, each_device: bool = False, runs: Path = RUNS
) -> None:
    """The cells, how many trials of which kind, and what they can show.

    `each_device`: every device is asked for; `runs` holds earlier runs, whose noise is used.
    """
    if study.title:
        console.print(Text(words.builtin(study.title), "bold"), highlight=False)
    lines = chain(
        _plan_lines(study, words, each_device=each_device), _prospect_lines(study, words, runs)
    )
    for line in lines:
        console.print(Text("\n".join(wrapped(line, console.width))), highlight=False)


def _plan_lines(study: Study, words: Words, *, each_device: bool) -> Iterator[str]:
    cells = [cell.id for cell in study.all_cells]
    yield words(
        "plan_settings",
        name=study.name,
        settings=words.counted("one_setting", "num_settings", len(cells)),
        cells=words.listed(cells[:MOST_CELLS]),
        more=words("plan_more", number=len(cells) - MOST_CELLS) if len(cells) > MOST_CELLS else "",
    )
    if study.same_as_base:
        yield words("plan_same_as_base", cells=words.listed(study.same_as_base))
    trials = trials_of(plan(study))
    num_learn = sum(trial.kind == "learn" for trial in trials)
    seeds = num_seeds(len(study.seeds), words)
    parts = [words("plan_learn", number=num_learn, seeds=seeds)] if num_learn else []
    if study.cost is not None:
        num_timed = sum(trial.watch == "steps" for trial in trials)
        several = len(cells) > 1
        parts.append(
            words(
                "plan_cost",
                timed=num_timed,
                profiled=len(trials) - num_learn - num_timed,
                check=words("plan_check") if several else "",
                more=_extra_text(study.cost, words) if several else "",
            )
        )
    line = words("list_semicolon").join(parts) + words("full_stop").strip()
    yield words.sentences(line, words("plan_each_device")) if each_device else line


def _prospect_lines(study: Study, words: Words, runs: Path) -> Iterator[str]:
    """What the seeds can show, and what they cannot."""
    if not study.learn or len(study.all_cells) < 2:
        return
    if len(study.seeds) < 2:
        yield words("plan_one_seed")
        return
    found = prospects(study, earlier_runs(runs, study))
    if study.looks:
        yield _looks_line(study.looks, words)
    for prospect in found[:1]:
        seeds, stds = num_seeds(prospect.num_seeds, words), f"{prospect.stds:.1f}"
        yield words("plan_finds", seeds=seeds, stds=stds, noise=_noise(prospect, words))
        if prospect.most_seeds > prospect.num_seeds:
            yield _most_seeds_line(prospect, words)
    for prospect in found:
        if prospect.margin is not None:
            yield _margin_line(prospect, words)


def _looks_line(looks: Sequence[int], words: Words) -> str:
    *others, last = map(str, looks)
    listed = words("list_names").join(others)
    fewest = words("plan_looks_fewest", number=FIRST_LOOK) if looks[0] == FIRST_LOOK else ""
    looks_text = words("name_and", first=listed, last=last) if others else last
    return words("plan_looks", looks=looks_text, fewest=fewest)


def _most_seeds_line(prospect: Prospect, words: Words) -> str:
    difference = prospect.most_seeds_difference
    amount = "" if difference is None else _amount(prospect.metric, difference, words)
    return words(
        "plan_most_seeds",
        seeds=num_seeds(prospect.most_seeds, words),
        stds=f"{prospect.most_seeds_stds:.1f}",
        amount=words("plan_amount", amount=amount) if amount else "",
    )


def _noise(prospect: Prospect, words: Words) -> str:
    if prospect.spread is None or prospect.difference is None:
        return words("plan_power")
    amount = _amount(prospect.metric, prospect.difference, words)
    number, metric = prospect.spread.num_trials, words.metric(prospect.metric)
    if number is None:
        return words("plan_noise_known", amount=amount, metric=metric)
    return words("plan_noise_earlier", amount=amount, metric=metric, number=number)


def _margin_line(prospect: Prospect, words: Words) -> str:
    metric, spread = prospect.metric, ""
    if prospect.spread is not None:
        is_known = prospect.spread.num_trials is None
        spread = words(
            "plan_spread_known" if is_known else "plan_spread_earlier",
            std=_amount(metric, prospect.spread.std, words),
            verdict=words("plan_can" if prospect.can_be_equivalent else "plan_cannot"),
        )
    return words(
        "plan_margin",
        metric=words.metric(metric),
        margin=_amount(metric, prospect.margin or 0.0, words),
        most=_amount(metric, prospect.largest_std or 0.0, words),
        spread=spread,
    )


def _amount(metric: str, value: float, words: Words) -> str:
    return metric_difference(metric, value, words("points")).lstrip("+")


def _extra_text(cost: CostSpec, words: Words) -> str:
    if cost.max_processes <= cost.processes or not cost.extra_s:
        return ""
    seconds, share = f"{cost.extra_s:.0f}", f"{100 * cost.ratio_within:.0f}%"
    return words("plan_extra", seconds=seconds, share=share)
