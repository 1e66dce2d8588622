"""From a study to its trials. Pure: the same study always gives the same trials in the same order."""

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Literal

from pydantic import NonNegativeInt

from trainlab.spec import Cell, CostSpec, Spec, Study, TrainSpec
from trainlab.spec.search import Bars, Levels
from trainlab.spec.settings import TIMED_WHOLE, Scalar
from trainlab.spec.study import BASE, cell_id

Watch = Literal["steps", "operators", "layers"]
WATCHES: tuple[Watch, ...] = ("layers", "operators")
"""Cost trials of a cell that supply no speed; what a layer costs is not seen of a script."""
MAX_CELL_ID_LENGTH = 80
"""As part of a folder's name."""


class Trial(Spec):
    """One cell with one seed, run once."""

    id: str
    """Names the trial's folder; unique within a run."""
    kind: Literal["learn", "try", "cost"] = "learn"
    """*learn* answers how well it learns; *try* learns as well, of a search, and is compared with nothing;
    *cost* what a step costs, alone in a fresh process."""
    workload: str
    cell: str = BASE
    """The cell's id; trials of one cell differ by seed or process only."""
    levels: dict[str, Scalar] = {}
    seed: NonNegativeInt
    settings: TrainSpec
    cost: CostSpec | None = None
    watch: Watch | None = None
    """What a cost trial looks at. Only `steps` runs bare and supplies speeds; the others tell shares."""
    again: bool = False
    """The second of an A/A pair: the same cell measured twice, so that what differs is noise."""
    weights_of: str | None = None
    """The learn trial whose trained weights a cost trial starts from."""
    bars: Bars | None = None
    """What stops a trial of a search before its end."""

    @property
    def process(self) -> int:
        """Of a trial that is timed, the number of its process, from 1; else 0."""
        match = re.search(r"-process(\d+)$", self.id)
        return int(match[1]) if match else 0

    def seed_of(self, part: Literal["weights", "order", "dropout"]) -> int:
        """The seed of one part of what is random; 0 for those that the study holds fixed."""
        return self.seed if self.settings.seed_parts in ("all", part) else 0


class Group(Spec):
    """Trials that one worker runs in one process, and what they need."""

    trials: tuple[Trial, ...]
    is_alone: bool
    """Whether nothing else may run on the machine meanwhile, and the process must be a fresh one."""
    bench: str | None = None
    """Groups of one bench are timed together: their processes take turns."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trial.id for trial in self.trials)

    @property
    def settings(self) -> TrainSpec:
        """What its trials ask of a machine is the same for all: device, threads and processes."""
        return self.trials[0].settings


def plan(study: Study) -> tuple[Group, ...]:
    """The trials that answer the study, by group, in the order they should run: the first seed, cost, then
    the other seeds, so that a study cut short has something of all. The very first trial is one of the
    quickest: a first result and an estimate of the time come soon."""
    first, *others = study.seeds
    begun = further_groups(study, [first])
    quickest = min(
        begun, key=lambda group: group.settings.epochs / group.settings.batch_size, default=None
    )
    return (
        *sorted(begun, key=lambda group: group is not quickest),
        *_cost_groups(study),
        *further_groups(study, others),
    )


def count_trials(num_cells: int, num_seeds: int, *, learn: bool, cost: CostSpec | None) -> int:
    """How many trials `plan` gives, without making one."""
    num_learn = num_cells * num_seeds if learn else 0
    if cost is None:
        return num_learn
    num_measured = num_cells * (2 if cost.weights == "both" else 1)
    num_timed = cost.processes * (num_measured + (2 if num_cells > 1 else 0))
    return num_learn + len(cost.modes) * (num_timed + len(WATCHES) * num_measured)


def further_groups(study: Study, seeds: Sequence[int]) -> tuple[Group, ...]:
    """The learn trials of some seeds, each a group that may run beside others. Of a seed every cell, in an
    order that depends on the seed, so that drift favours no cell."""
    groups = []
    for seed in seeds if study.learn else ():
        cells = list(study.all_cells)
        random.Random(f"{study.name}/learn/{seed}").shuffle(cells)  # noqa: S311  an order, not a secret
        for cell in cells:
            trial = Trial(
                id=_learn_id(study, cell, seed),
                workload=study.workload,
                cell=cell.id,
                levels=cell.levels,
                seed=seed,
                settings=cell.settings,
            )
            groups.append(Group(trials=(trial,), is_alone=False))
    return tuple(groups)


SEARCHED_SEED = 0
"""Of all that a search tries: what is confirmed has other seeds."""


def tried_groups(
    study: Study, tried: Sequence[tuple[Levels, TrainSpec]], first: int, bars: Bars | None
) -> tuple[Group, ...]:
    """The trials of settings that a search tries, numbered from `first` on; each may run beside others."""
    return tuple(
        Group(
            trials=(
                Trial(
                    id=f"try-{number:03}",
                    kind="try",
                    workload=study.workload,
                    cell=cell_id(levels),
                    levels=levels,
                    seed=SEARCHED_SEED,
                    settings=settings,
                    bars=bars,
                ),
            ),
            is_alone=False,
        )
        for number, (levels, settings) in enumerate(tried, first)
    )


def trials_of(groups: Iterable[Group]) -> tuple[Trial, ...]:
    return tuple(trial for group in groups for trial in group.trials)


def _cost_groups(study: Study) -> Iterator[Group]:
    """Timed processes first, so that no profiler has warmed or slowed the machine before them. Trials that
    supply no speed share a process per cell, mode and weights: starting one takes most of their time."""
    if study.cost is None:
        return
    for number in range(1, study.cost.processes + 1):
        for mode in study.cost.modes:
            yield from bench_of(study, mode, number)
    for cell in study.all_cells:
        if cell.settings.engine in TIMED_WHOLE or cell.settings.processes > 1:
            continue
        for mode in study.cost.modes:
            watches = WATCHES if study.script is None else WATCHES[1:]
            watched = _cost_trials_of(study, cell, mode, dict(zip(watches, watches, strict=True)))
            for _, trials in groupby(watched, lambda one: (one.cell, one.cost, one.weights_of)):
                yield Group(trials=tuple(trials), is_alone=True)


def bench_of(study: Study, mode: str, number: int) -> tuple[Group, ...]:
    """A fresh process for every cell, the first cell first, and for the second of each A/A pair. Benches
    are numbered from 1; those beyond `processes` are run where the first do not suffice."""
    cells = study.all_cells
    is_diagnosed = study.script is not None and study.script.has_whole_turns
    # The cells whose steps should be the shortest and the longest; of a diagnosis the first, unchanged.
    by_size = sorted(cells, key=lambda cell: cell.settings.batch_size)
    twice = cells[:1] if is_diagnosed else [by_size[0], by_size[-1]] if len(cells) > 1 else []
    timed = [(cell, False) for cell in cells] + [(cell, True) for cell in twice]
    return tuple(
        Group(trials=(trial,), is_alone=True, bench=f"{mode}-{number}")
        for cell, again in timed
        for trial in _cost_trials_of(study, cell, mode, {f"process{number}": "steps"}, again)
    )


def _cost_trials_of(
    study: Study, cell: Cell, mode: str, watches: Mapping[str, Watch], again: bool = False
) -> Iterator[Trial]:
    """For each of the watches, by their part of the id, and each kind of weights; `again` for the first
    kind alone, since a setting differs from itself by as much with either."""
    assert study.cost is not None
    seed, cost = study.seeds[0], study.cost
    kinds = ("untrained", "trained") if cost.weights == "both" else (cost.weights,)
    for weights, (name, watch) in product(kinds[:1] if again else kinds, watches.items()):
        parts = [
            f"cost-{mode}",
            *([_folder_name(cell.id)] if len(study.all_cells) > 1 else []),
            *(["again"] if again else []),
            *([weights] if cost.weights != "untrained" else []),
            name,
        ]
        yield Trial(
            id="-".join(parts),
            kind="cost",
            workload=study.workload,
            cell=cell.id,
            levels=cell.levels,
            seed=seed,
            settings=cell.settings,
            cost=cost.model_copy(update={"mode": mode}),
            watch=watch,
            again=again,
            weights_of=_learn_id(study, cell, seed) if weights == "trained" else None,
        )


def _learn_id(study: Study, cell: Cell, seed: int) -> str:
    # A search has trained its base before there were other cells.
    is_alone = len(study.all_cells) == 1 or (study.search is not None and cell.id == BASE)
    return f"learn-{'' if is_alone else _folder_name(cell.id) + '-'}seed{seed}"


def _folder_name(cell_id: str) -> str:
    """A cell's id as part of a folder's name, unique even where it had to be cut or cleaned."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]", "_", cell_id)[:MAX_CELL_ID_LENGTH]
    if name == cell_id:
        return name
    return f"{name}-{hashlib.sha256(cell_id.encode()).hexdigest()[:8]}"
