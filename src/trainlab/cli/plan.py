"""A study's plan in words, before the long part begins."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from trainlab.analyse.prospects import Prospect, earlier_runs, prospects
from trainlab.plan import plan, trials_of
from trainlab.record.folder import RUNS
from trainlab.spec import CostSpec, Study
from trainlab.spec.question import FIRST_LOOK
from trainlab.words.numbers import metric_difference

MOST_CELLS = 12
"""Cells that are named; of further ones only the number is given."""


def plan_json(study: Study) -> dict[str, Any]:
    """The plan for programs: settings and levels of every cell, and the trials by group."""
    return {
        "name": study.name,
        "workload": study.workload,
        "cells": [
            {"id": cell.id, "levels": cell.levels, "settings": cell.settings.model_dump()}
            for cell in study.all_cells
        ],
        "seeds": list(study.seeds),
        "groups": [list(group.ids) for group in plan(study)],
    }


def print_plan(
    console: Console, study: Study, *, each_device: bool = False, runs: Path = RUNS
) -> None:
    """The cells, how many trials of which kind, and what they can show.

    `each_device`: every device is asked for; `runs` holds earlier runs, whose noise is used.
    """
    trials = trials_of(plan(study))
    num_learn = sum(trial.kind == "learn" for trial in trials)
    cells = [cell.id for cell in study.all_cells]
    shown = ", ".join(cells[:MOST_CELLS])
    more = f" and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else ""
    if study.title:
        console.print(f"[bold]{escape(study.title)}[/bold]", highlight=False)
    cells_text = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    console.print(f"{escape(study.name)}: {cells_text}: {escape(shown)}{more}", highlight=False)
    if study.same_as_base:
        same = ", ".join(study.same_as_base)
        console.print(f"The same as base, and not run again: {escape(same)}.", highlight=False)
    seeds_text = "1 seed" if len(study.seeds) == 1 else f"{len(study.seeds)} seeds"
    parts = [f"{num_learn} learn trials ({seeds_text})"] if num_learn else []
    if study.cost is not None:
        num_timed = sum(trial.watch == "steps" for trial in trials)
        num_watched = len(trials) - num_learn - num_timed
        check = ", two cells measured twice as a check" if len(cells) > 1 else ""
        more = _more_text(study.cost) if len(cells) > 1 else ""
        parts.append(f"{num_timed} timed and {num_watched} watched trials for cost{check}{more}")
    again = " The same again on each further device of the machine that runs it."
    console.print(f"{'; '.join(parts)}.{again if each_device else ''}", highlight=False)
    for line in _prospect_lines(study, runs):
        console.print(line, highlight=False)


def _prospect_lines(study: Study, runs: Path) -> Iterator[str]:
    """What the seeds can show, and what they cannot."""
    if not study.learn or len(study.all_cells) < 2:
        return
    if len(study.seeds) < 2:
        yield "One seed cannot show a difference in what is learned; use --seeds 3 or more."
        return
    found = prospects(study, earlier_runs(runs, study))
    if study.looks:
        yield _looks_line(study.looks)
    for prospect in found[:1]:
        size = f"{prospect.stds:.1f} standard deviations of a run"
        yield f"{prospect.num_seeds} seeds find differences of {size} or more{_noise(prospect)}."
        if prospect.most_seeds > prospect.num_seeds:
            yield _most_seeds_line(prospect)
    for prospect in found:
        if prospect.margin is not None:
            yield _margin_line(prospect)


def _looks_line(looks: Sequence[int]) -> str:
    *others, last = map(str, looks)
    looks_text = f"{', '.join(others)} and {last}" if others else last
    fewest = f", {FIRST_LOOK} being the fewest to begin with" if looks[0] == FIRST_LOOK else ""
    return f"Seeds are added until all is decided: looks after {looks_text}{fewest}."


def _most_seeds_line(prospect: Prospect) -> str:
    text = (
        f"{prospect.most_seeds} seeds, the most there will be, find "
        f"{prospect.most_seeds_stds:.1f} standard deviations or more"
    )
    if prospect.most_seeds_difference is None:
        return f"{text}."
    return f"{text}, that is {_amount(prospect.metric, prospect.most_seeds_difference)}."


def _noise(prospect: Prospect) -> str:
    if prospect.spread is None or prospect.difference is None:
        return " (four times out of five)"
    amount = _amount(prospect.metric, prospect.difference)
    count = prospect.spread.num_trials
    source = "this study's known noise" if count is None else f"the noise of {count} earlier trials"
    return f", that is {amount} of {prospect.metric} by {source}"


def _margin_line(prospect: Prospect) -> str:
    metric, margin, most = prospect.metric, prospect.margin or 0.0, prospect.largest_std or 0.0
    text = (
        f"{metric}: equivalence within {_amount(metric, margin)} can be shown if runs vary by "
        f"{_amount(metric, most)} or less (standard deviation)"
    )
    if prospect.spread is None:
        return f"{text}."
    verdict = "they do" if prospect.can_be_equivalent else "so it cannot be shown here"
    whose = "here they vary" if prospect.spread.num_trials is None else "earlier trials vary"
    return f"{text}; {whose} by about {_amount(metric, prospect.spread.std)}: {verdict}."


def _amount(metric: str, value: float) -> str:
    return metric_difference(metric, value, "points").lstrip("+")


def _more_text(cost: CostSpec) -> str:
    if cost.max_processes <= cost.processes or not cost.extra_s:
        return ""
    return (
        f", more for up to {cost.extra_s:.0f} s where a ratio is not known to "
        f"{100 * cost.ratio_within:.0f}%"
    )
