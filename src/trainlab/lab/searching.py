"""Search: rounds of settings that are tried, each chosen by what those before it came to, then the best of
them confirmed with seeds that chose nothing."""

import math
import random
import statistics
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from trainlab.analysis.evidence import busy_s
from trainlab.analysis.search import Tried, ranked, score_text, tried_of
from trainlab.execute.planned_run import add_groups
from trainlab.extras import import_extra
from trainlab.lab.opened import Run
from trainlab.lab.run_progress import Watcher
from trainlab.plan import Group, plan, tried_groups
from trainlab.spec import Cell, CostSpec, Study, TrainSpec, checked, settings_for
from trainlab.spec.search import SETTINGS, Bars, Dimension, Levels, SearchSpec, grid_of
from trainlab.spec.settings import Scalar
from trainlab.spec.study import BASE, cell_id, with_levels, without_part

ROUNDS, FEWEST = 6, 4
"""All settings are tried in so many rounds, of FEWEST or more: those of one round train side by side."""
FEWEST_JUDGED = 5
"""Bars are set once so many have come to an epoch."""
DRAWN = 20
"""So many draws for each setting that is to be new."""


def tried_in(run: Run, search: SearchSpec) -> list[Tried]:
    """All that have ended, in the order in which they were planned."""
    ended = [
        one
        for one in run.trials()
        if one.kind == "try" and one.state in ("done", "diverged", "failed")
    ]
    return [tried_of(one, run.trial(one.id).epochs(), search) for one in ended]


class SearchStage:
    """From what was tried to what is tried next, and in the end to the trials that confirm it."""

    def __init__(self, study: Study, watcher: Watcher | None = None) -> None:
        assert study.search is not None
        self._search, self._tell = study.search, (watcher or Watcher()).tell

    def groups(self, run: Run) -> tuple[Group, ...]:
        """Adds the next round to the run, or the best of all, and gives what runs it; nothing where both
        have been, or the run has a trial that has not ended."""
        search, study = self._search, run.study().to_study(str(run.study_file))
        trials = run.trials()
        if study.cells or any(one.state in ("pending", "running", "interrupted") for one in trials):
            return ()
        tried = tried_in(run, search)
        if tried:
            self._tell_best(tried)
        levels = self._next_round(tried, busy_s(trials), len(study.seeds))
        if not levels:
            return self._confirm(run, study, tried)
        settings = [self._settings(one) for one in levels]
        named = list(zip(levels, settings, strict=True))
        groups = tried_groups(study, named, len(tried) + 1, self._bars(tried, study.settings))
        add_groups(run, groups)
        return groups

    def _settings(self, levels: Levels) -> TrainSpec:
        search = self._search
        return settings_for(search.defaults, with_levels(search.asked, levels))

    def _next_round(self, tried: Sequence[Tried], spent_s: float, num_seeds: int) -> list[Levels]:
        """Empty where as many as asked for have been tried, or there is no time for more."""
        search = self._search
        most = search.settings or (math.inf if search.budget_s else SETTINGS)
        size = max(FEWEST, math.ceil((search.settings or SETTINGS) / ROUNDS))
        count = min(size, most - len(tried))
        if search.budget_s is not None and tried:
            # The base, trained with all seeds, has come first.
            each_s = spent_s / (len(tried) + num_seeds)
            left_s = search.budget_s - spent_s - search.confirm * num_seeds * each_s
            count = min(count, math.floor(left_s / each_s))
        return [] if count < 1 else proposed(search, tried, int(count))

    def _bars(self, tried: Sequence[Tried], base: TrainSpec) -> Bars | None:
        """What half of those before were no worse than, after each epoch but the last."""
        search = self._search
        values = list[float]()
        is_asked = search.stop_early and search.time_to is None
        for epoch in range(base.epochs - 1 if is_asked else 0):
            come = [one.values[epoch] for one in tried if len(one.values) > epoch]
            if len(known := [one for one in come if math.isfinite(one)]) < FEWEST_JUDGED:
                break
            values.append(statistics.median(known))
        bar: dict[str, Any] = {"metric": search.metric, "is_lower_better": search.is_lower_better}
        return Bars(**bar, values=tuple(values)) if values else None

    def _confirm(self, run: Run, study: Study, tried: Sequence[Tried]) -> tuple[Group, ...]:
        """The best, each with every seed of the study; the base has been trained with them."""
        search, meanings = self._search, [study.settings.meaning]
        cells = [Cell(id=BASE, settings=study.settings)]
        for one in ranked(tried, search):
            settings = self._settings(one.levels)
            if settings.meaning not in meanings and len(cells) <= search.confirm:
                meanings.append(settings.meaning)
                cells.append(Cell(id=cell_id(one.levels), levels=one.levels, settings=settings))
        cost = None if search.cost is None else checked(CostSpec, search.cost)
        changes: dict[str, Any] = {"cells": tuple(cells), "cost": cost}
        if search.time_to is not None:
            metric = f"test/{without_part(search.metric)}"
            changes["targets"] = {**study.targets, metric: search.time_to}
        study = study.model_copy(update=changes)
        # The base has been trained already.
        trained = run.study().trials
        groups = tuple(group for group in plan(study) if group.ids[0] not in trained)
        if groups:
            add_groups(run, groups, study)
            number = len(cells) - 1
            self._tell(
                lambda words: words("search_confirms", number=number, seeds=len(study.seeds))
            )
        return groups

    def _tell_best(self, tried: Sequence[Tried]) -> None:
        best, search = next(iter(ranked(tried, self._search)), None), self._search
        if best is not None:
            of = search.settings or (SETTINGS if search.budget_s is None else 0)
            told = {"tried": len(tried), "of": of, "best": cell_id(best.levels)}
            self._tell(
                lambda words: words(
                    "search_so_far" if of else "search_so_far_open",
                    **told,
                    value=score_text(best.score, search),
                )
            )


# What is tried next: Optuna's samplers, of which each round has a fresh one that is told all that has been
# tried, so that a search which goes on after a kill tries the same.


def proposed(search: SearchSpec, tried: Sequence[Tried], count: int) -> list[Levels]:
    """So many settings that were not tried yet; fewer where the space has no more. MissingExtraError
    without Optuna."""
    seen = {str(sorted(one.levels.items())) for one in tried}
    candidates = iter(_grid(search)) if search.sampler == "grid" else _drawn(search, tried, count)
    found = list[Levels]()
    for levels in candidates:
        if (key := str(sorted(levels.items()))) not in seen:
            seen.add(key)
            found.append(levels)
        if len(found) == count:
            break
    return found


def _grid(search: SearchSpec) -> list[Levels]:
    """In one order, whatever was tried: what the budget leaves out is any part of it."""
    grid = grid_of(search.dimensions)
    random.Random("grid").shuffle(grid)  # noqa: S311  an order, not a secret
    return grid


def _drawn(search: SearchSpec, tried: Sequence[Tried], count: int) -> Iterator[Levels]:
    optuna = import_extra("optuna", "a search", "search")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = random.Random(f"{search.draw}/{len(tried)}").randrange(2**32)  # noqa: S311
    sampler = optuna.samplers.RandomSampler(seed=seed)
    if search.sampler == "tpe":
        with warnings.catch_warnings():  # that asking for several at once may change
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    is_lower = search.is_lower_better or search.time_to is not None
    direction = "minimize" if is_lower else "maximize"
    study = optuna.create_study(direction=direction, sampler=sampler)
    spaces = {one.name: _distribution(optuna, one) for one in search.dimensions}
    study.add_trials([_told(optuna, one, spaces) for one in tried])
    for _ in range(DRAWN * count):
        trial, levels = study.ask(), Levels()
        for one in search.dimensions:
            if one.applies(levels):
                levels[one.name] = one.rounded(_suggested(trial, one))
        yield levels


def _suggested(trial: Any, one: Dimension) -> Scalar:
    if one.choices:
        drawn: Scalar = trial.suggest_categorical(one.name, one.choices)
        return drawn
    suggest = trial.suggest_int if one.is_whole else trial.suggest_float
    number: int | float = suggest(one.name, one.low, one.high, log=one.is_log)
    return number


def _distribution(optuna: Any, one: Dimension) -> Any:
    kinds = optuna.distributions
    if one.choices:
        return kinds.CategoricalDistribution(one.choices)
    kind = kinds.IntDistribution if one.is_whole else kinds.FloatDistribution
    return kind(one.low, one.high, log=one.is_log)


def _told(optuna: Any, one: Tried, spaces: dict[str, Any]) -> Any:
    """A setting that was tried, as Optuna keeps it."""
    states = optuna.trial.TrialState
    of_curve = one.values if one.reached_s is None else ()
    values = {n: v for n, v in enumerate(of_curve) if math.isfinite(v)}
    is_scored = one.is_whole and math.isfinite(one.score)
    state = states.COMPLETE if is_scored else states.PRUNED if values else states.FAIL
    return optuna.trial.create_trial(
        params=one.levels,
        distributions={name: spaces[name] for name in one.levels},
        value=one.score if is_scored else None,
        intermediate_values=values,
        state=state,
    )
