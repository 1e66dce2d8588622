"""That probes inside a program record what they record where every operation runs from Python.

The oracle is the engine eager, with the same trials. Counts, steps and shapes must be equal; numbers as far
as rounding goes, which differs where many trials are one operation. Models are float64, so that rounding
flips no maximum and the first digits are the probes' own.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import InPlace, Shared, nested
from training import HomedSetup, MakeSetup
from trainlab.errors import SpecError
from trainlab.instruments.probe_instrument import Probes
from trainlab.record.trial_record import Progress
from trainlab.spec import TrainSpec
from trainlab.spec.probe import probe_of
from trainlab.train.callbacks import Moments
from trainlab.train.engines import ENGINES, engine_for, programs
from trainlab.train.engines.capture import WARMUP_STEPS
from trainlab.train.engines.engine import Member
from trainlab.train.loop import train
from trainlab.workloads.workload import Workload

WITHIN = 1e-8
"""As far as rounding in float64 goes, some updates on."""
REDUCERS = ("sq_sum", "sum", "norm", "mean", "std", "min", "max", "zero_fraction", "positive_count")
HISTOGRAMS = ("histogram", "histogram(-1,1,7)")
OF_CALLS = ("activation", "pre_activation", "grad_output", "grad_input")
OF_PARAMETERS = ("weight", "grad", "update")

both = pytest.mark.parametrize("engine", [pytest.param("graphed", marks=pytest.mark.slow), "lanes"])


class Twice(nn.Module):
    """The same ReLU, as a module and as a function, called twice each."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.middle, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.relu = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.relu(self.middle(self.relu(self.into(inputs))))
        return self.last(F.relu(F.relu(hidden) - 0.1))


class Images(nn.Module):
    """Convolutions in one dimension: their units are channels, though a tensor has three dimensions.
    Dropout of elements and of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv1d(1, 5, 3), nn.Linear(15, 3)
        self.fixed = nn.Parameter(torch.ones(6), requires_grad=False)
        self.some, self.whole = nn.Dropout(0.2), nn.Dropout1d(0.2)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.fixed * self.whole(self.conv(inputs[:, None])) - 0.3)
        return self.last(self.some(F.max_pool1d(hidden, 2)).flatten(1))


@pytest.fixture
def setup_of(make_setup: MakeSetup, tiny: Workload) -> MakeSetup:
    """A setup of the tiny workload with another model: 103 samples, so that a last batch is smaller."""

    def make(model: Callable[..., nn.Module], seed: int = 1, **asked: Any) -> HomedSetup:
        workload = dataclasses.replace(
            tiny, model=lambda **given: model(**given).double(), prepare=lambda x: x.double()
        )
        return make_setup(seed, workload, **{"batch_size": 20, "log_every_steps": 4, **asked})

    return make


def probed(engine: str, setups: Sequence[HomedSetup], *probes: str) -> list[Progress]:
    """Trains them, together where the engine can."""
    specs = [probe_of(probe) for probe in probes]
    members = [
        Member(setup, Moments([Probes(specs)] if specs else []), Progress()) for setup in setups
    ]
    for part in [members] if ENGINES[engine].takes_many else [[one] for one in members]:
        session = ENGINES[engine].open(part)
        try:
            for one in part:
                one.moments.trial_begins(one.setup.view(one.setup.folder))
            train(session, part)
        finally:
            for one in part:
                one.moments.trial_ends(one.progress)
    return [one.progress for one in members]


def facts_of(setup: HomedSetup) -> list[Any]:
    """Everything but numbers that are rounded."""
    numbers = {"value", "histogram", "not_finite"}
    lines = [line.model_dump(exclude=numbers) for line in setup.folder.probe_lines()]
    return [setup.folder.probes.read(), *lines]


def assert_alike(ours: HomedSetup, reference: HomedSetup) -> None:
    """The same records, but for rounding."""
    assert facts_of(ours) == facts_of(reference)
    got, expected = ours.folder.probe_lines(), reference.folder.probe_lines()
    assert expected
    for one, other in zip(got, expected, strict=True):
        if one.histogram is not None and other.histogram is not None:
            counts = ([h.below, *h.counts, h.above] for h in (one.histogram, other.histogram))
            moved = [a - b for a, b in zip(*counts, strict=True)]
            assert sum(moved) == 0, one
            assert sum(map(abs, moved)) <= 2, one
        elif other.value is None:
            assert (one.value, one.not_finite) == (None, other.not_finite)
        else:
            # Sums may cancel: of what is left, rounding is a larger share.
            room = 1e-9 * math.sqrt(other.count) if other.reducer == "sum" else 1e-12
            assert one.value == pytest.approx(other.value, rel=WITHIN, abs=room), other


def assert_as_eager(
    engine: str, model: Callable[..., nn.Module], setup_of: MakeSetup, probes: Sequence[str]
) -> None:
    """The records of trials that differ."""
    ours, reference = (different(lambda **asked: setup_of(model, **asked)) for _ in "ab")
    probed("eager", reference, *probes)
    probed(engine, ours, *probes)
    for one, other in zip(ours, reference, strict=True):
        assert_alike(one, other)


def all_probes(*periods: str) -> list[str]:
    """Every quantity with every reducer, over periods that change from one to the next."""
    reducers = (*REDUCERS, *HISTOGRAMS)
    pairs = [(one, reducer) for one in (*OF_CALLS, *OF_PARAMETERS) for reducer in reducers]
    pairs += [("activation", "dead_fraction"), ("pre_activation", "dead_fraction")]
    return [
        f"*:{quantity}:{reducer}@{every}"
        for (quantity, reducer), every in zip(pairs, cycle(periods), strict=False)
    ]


SOME = [
    *(f"*:{quantity}:std@3" for quantity in (*OF_CALLS, *OF_PARAMETERS)),
    *("*:grad_input:histogram", "*:activation:dead_fraction@4"),
]
"""One of each kind."""


def different(make: Callable[..., HomedSetup], **asked: Any) -> list[HomedSetup]:
    """Trials that one program can hold: seeds, optimizers and gradient resets differ."""
    return [
        make(seed=1, optimizer="adam", lr=0.01, **asked),
        make(seed=2, optimizer="adam", lr=0.001, zero_grad=False, **asked),
        make(seed=3, optimizer="sgd", lr=0.01, **asked),
    ]


@pytest.mark.parametrize(
    ("model", "periods"),
    [
        (Twice, ("epoch", "3", "step")),
        (InPlace, ("3", "epoch")),
        pytest.param(Shared, ("step", "epoch", "3"), marks=pytest.mark.full),
        pytest.param(nested, ("4", "step", "epoch"), marks=pytest.mark.full),
        (Images, ("epoch", "step", "2")),
    ],
)
@pytest.mark.slow
def test_every_quantity_by_every_reducer_is_what_eager_records(
    model: Callable[..., nn.Module], periods: Sequence[str], setup_of: MakeSetup
) -> None:
    for engine in ("graphed", "lanes"):
        assert_as_eager(engine, model, setup_of, all_probes(*periods))


@both
def test_a_reducer_of_the_users_own_is_run_for_every_trial(
    engine: str, setup_of: MakeSetup, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import torch\n"
        "def spread(values): return values.max() - values.min()\n"
        "def by_hand(values): return torch.tensor(float(values.abs().max()))\n"
    )
    probes = [f"*:activation:{own}:spread@2", f"*:weight:{own}:by_hand@2"]
    assert_as_eager(engine, Twice, setup_of, probes)


@both
def test_losses_are_the_same_to_the_last_bit_with_probes_and_without(
    engine: str, setup_of: MakeSetup
) -> None:
    bare = probed(engine, different(lambda **a: setup_of(nested, **a)))
    watched = probed(engine, different(lambda **a: setup_of(nested, **a)), *SOME)
    assert [one.final for one in bare] == [one.final for one in watched]


def replayed(
    step: Callable[[], None],
    device: torch.device,
    changes: Sequence[Tensor],
    generators: Sequence[torch.Generator] = (),
) -> Callable[[], None]:
    """Runs its step as often before the first run as a capture does, and undoes it as that does."""
    kept = [tensor.clone() for tensor in changes]
    for _ in range(WARMUP_STEPS + 1):
        step()
    with torch.no_grad():
        for tensor, before in zip(changes, kept, strict=True):
            tensor.copy_(before)
    return step


def test_steps_that_are_replayed_are_counted_by_the_one_that_was_captured(
    setup_of: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the Python of a step does not run again: the host knows only how many were made."""
    monkeypatch.setattr(programs, "repeated", replayed)
    assert_as_eager("lanes", Twice, setup_of, SOME)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_trial_that_diverges_keeps_its_own_records_and_disturbs_no_other(
    setup_of: MakeSetup,
) -> None:
    probes = [*(f"*:{one}:norm@{n}" for one in ("activation", "weight") for n in (3, "epoch"))]
    probes += ["*:grad:sq_sum@100", "*:weight:max@100", "*:activation:max@step"]

    def make() -> list[HomedSetup]:
        rates = {1: 0.01, 2: 1e30, 3: 0.01}
        return [setup_of(Shared, s, optimizer="sgd", lr=r, epochs=3) for s, r in rates.items()]

    ours, reference = make(), make()
    expected = probed("eager", reference, *probes)
    found = probed("lanes", ours, *probes)
    assert [one.state for one in found] == [one.state for one in expected]
    assert [one.state for one in found] == ["done", "diverged", "done"]
    for one, other in zip(ours[::2], reference[::2], strict=True):
        assert_alike(one, other)
    assert facts_of(ours[1]) == facts_of(reference[1])


@both
def test_a_probe_that_cannot_fire_fails_the_trial_as_by_eager(
    engine: str, setup_of: MakeSetup
) -> None:
    class Unused(Twice):
        def __init__(self) -> None:
            super().__init__()
            self.unused, self.frozen = nn.Tanh(), nn.Linear(2, 2).requires_grad_(False)

    for probe in (
        *("rleu:activation:mean", "nothing.*:grad:norm", "unused:activation:mean"),
        *("frozen.weight:grad:norm", "into:grad_input:norm", "last:local_grad:mean"),
    ):
        said = []
        for name in ("eager", engine):
            with pytest.raises(SpecError) as refused:
                probed(name, [setup_of(Unused, 1), setup_of(Unused, 2)], probe)
            said.append(str(refused.value))
        # Eager may name further calls, which a program does not make, behind those of the model.
        assert said[0].startswith(said[1])


def test_an_engine_whose_steps_are_a_program_takes_probes() -> None:
    watched = [Moments([Probes([probe_of("relu:activation:mean")])])]
    assert watched[0].grain == "call"
    taken = {name: engine_for(TrainSpec(engine=name), watched)[0].name for name in ENGINES}
    # What a compiled model calls cannot be seen.
    assert taken == {name: name for name in ENGINES} | {"compiled": "eager"}
