"""A study's plan in words, before the long part begins."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from trainlab.plan import plan, trials_of
from trainlab.spec import CostSpec, Study

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


def print_plan(console: Console, study: Study, *, each_device: bool = False) -> None:
    """The cells and how many trials of which kind. `each_device`: every device is asked for."""
    trials = trials_of(plan(study))
    num_learn = sum(trial.kind == "learn" for trial in trials)
    cells = [cell.id for cell in study.all_cells]
    shown = ", ".join(cells[:MOST_CELLS])
    more = f" and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else ""
    if study.title:
        console.print(f"[bold]{escape(study.title)}[/bold]", highlight=False)
    cells_text = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    console.print(f"{escape(study.name)}: {cells_text}: {escape(shown)}{more}", highlight=False)
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


def _more_text(cost: CostSpec) -> str:
    if cost.max_processes <= cost.processes or not cost.extra_s:
        return ""
    return (
        f", more for up to {cost.extra_s:.0f} s where a ratio is not known to "
        f"{100 * cost.ratio_within:.0f} %"
    )
