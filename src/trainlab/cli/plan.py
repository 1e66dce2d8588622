"""A study's plan in words, before the long part begins."""

from rich.console import Console
from rich.markup import escape

from trainlab.plan import plan, trials_of
from trainlab.spec import Study

MOST_CELLS = 12


def print_plan(console: Console, study: Study, *, each_device: bool = False) -> None:
    """The cells and how many trials of which kind. `each_device`: what runs it may have several."""
    trials = trials_of(plan(study))
    learn = sum(trial.kind == "learn" for trial in trials)
    cells = [cell.id for cell in study.all_cells]
    shown = ", ".join(cells[:MOST_CELLS])
    more = f" and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else ""
    if study.title:
        console.print(f"[bold]{escape(study.title)}[/bold]", highlight=False)
    count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    console.print(f"{escape(study.name)}: {count}: {escape(shown)}{more}", highlight=False)
    seeds = "1 seed" if len(study.seeds) == 1 else f"{len(study.seeds)} seeds"
    parts = [f"{learn} learn trials ({seeds})"] if learn else []
    if study.cost is not None:
        timed = sum(trial.watch == "steps" for trial in trials)
        pair = ", one cell measured twice as a check" if len(cells) > 1 else ""
        watched = len(trials) - learn - timed
        parts.append(f"{timed} timed and {watched} watched trials for cost{pair}")
    also = (
        " The same again on each further device of the machine that runs it." if each_device else ""
    )
    console.print(f"{'; '.join(parts)}.{also}", highlight=False)
