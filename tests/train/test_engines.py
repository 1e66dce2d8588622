"""The contract that every engine keeps; eager is the reference."""

import shutil
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from training import HomedSetup, MakeSetup
from trainlab.record.schema import note
from trainlab.record.trial_record import Progress
from trainlab.spec import TrainSpec
from trainlab.spec.base import choices_of
from trainlab.spec.settings import TIMED_WHOLE
from trainlab.train.callbacks import GRAINS, Instrument, Moments, Phase
from trainlab.train.engines import ENGINES, engine_for
from trainlab.train.engines.eager import EagerEngine
from trainlab.train.engines.engine import Engine, Member, Session
from trainlab.train.loop import train
from trainlab.train.metering import Means
from trainlab.workloads.workload import Workload

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler"
)
compiles = [needs_compiler, pytest.mark.slow]
engines = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(
            engine, id=name, marks=[needs_compiler, pytest.mark.slow] if name == "compiled" else []
        )
        for name, engine in ENGINES.items()
    ],
)


def member(setup: HomedSetup, *instruments: Instrument) -> Member:
    return Member(setup, Moments(instruments), Progress())


def trained(engine: Engine, setup: HomedSetup) -> Member:
    one = member(setup)
    train(engine.open([one]), [one])
    return one


def test_every_engine_can_be_asked_for_by_its_name_and_plans_know_what_it_shows() -> None:
    assert set(choices_of(TrainSpec, "engine")) == {"auto", *ENGINES}
    assert all(name == engine.name for name, engine in ENGINES.items())
    phase = GRAINS.index("phase")
    whole = {name for name, one in ENGINES.items() if GRAINS.index(one.shows) < phase}
    assert whole == TIMED_WHOLE


@engines
@pytest.mark.slow
def test_an_engine_learns_what_eager_learns(engine: Engine, make_setup: MakeSetup) -> None:
    ours = trained(engine, make_setup(seed=3)).progress
    reference = trained(EagerEngine(), make_setup(seed=3)).progress
    assert ours.final == pytest.approx(reference.final, rel=1e-4)
    assert (ours.state, ours.steps_done, ours.epochs_done) == ("done", 22, 2)


@engines
def test_the_same_seed_gives_the_same_losses_to_the_last_bit(
    engine: Engine, make_setup: MakeSetup
) -> None:
    first, again = (trained(engine, make_setup(seed=2)).progress for _ in range(2))
    assert first.final == again.final
    assert trained(engine, make_setup(seed=4)).progress.final != first.final


@engines
def test_an_epoch_needs_no_history(engine: Engine, make_setup: MakeSetup) -> None:
    """Data order and dropout of an epoch derive from (seed, epoch) alone."""

    def second_epoch(with_first: bool) -> Means:
        one = member(make_setup(lr=1e-30, optimizer="sgd"))  # weights that stay as they are
        session = engine.open([one])
        if with_first:
            with session.training(1):
                session.advance(11)
        with session.training(2):
            return session.advance(11)[0]

    assert second_epoch(with_first=True).values == second_epoch(with_first=False).values


@engines
def test_points_do_not_change_what_is_computed(engine: Engine, make_setup: MakeSetup) -> None:
    def losses(sizes: Sequence[int]) -> tuple[float, int]:
        one = member(make_setup())
        session = engine.open([one])
        with session.training(1):
            found = [session.advance(size)[0] for size in sizes]
        total = sum(means.values["loss"] * means.num_samples for means in found)
        assert [means.num_steps for means in found] == list(sizes)
        return total, sum(means.num_samples for means in found)

    assert losses([11])[1] == losses([4, 4, 3])[1] == 103
    assert losses([11])[0] == pytest.approx(losses([1] * 11)[0], rel=1e-9)


@engines
def test_a_loss_that_is_not_finite_is_found_at_its_step(
    engine: Engine, make_setup: MakeSetup
) -> None:
    one = trained(engine, make_setup(optimizer="sgd", lr=1e38, log_every_steps=4))
    assert one.progress.state == "diverged"
    assert one.progress.diverged_at_step in (2, 3)


@engines
def test_a_test_needs_no_training_and_changes_nothing(
    engine: Engine, make_setup: MakeSetup
) -> None:
    one = member(make_setup())
    before = [parameter.detach().clone() for parameter in one.setup.model.parameters()]
    session = engine.open([one])
    first, again = session.test(1)[0], session.test(1)[0]
    assert first == again
    assert first.num_samples == 31
    assert all(map(torch.equal, before, one.setup.model.parameters()))


@engines
def test_learning_rates_follow_the_schedule(engine: Engine, make_setup: MakeSetup) -> None:
    session: Session = engine.open([member(make_setup(schedule="step", lr=0.8, lr_gamma=0.5))])
    rates = []
    for epoch in (1, 2, 3):
        with session.training(epoch):
            session.advance(11)
        rates.append(session.learning_rates()[0])
        session.change_learning_rates()
    assert rates == [0.8, 0.4, 0.2]


@engines
def test_one_step_by_itself_is_an_update_and_a_pass_is_none(
    engine: Engine, make_setup: MakeSetup
) -> None:
    setup = make_setup()
    before = [parameter.detach().clone() for parameter in setup.model.parameters()]
    with torch.no_grad():
        engine.inference_step(setup, Moments([]))(next(setup.test_batches.in_order()))
    assert all(map(torch.equal, before, setup.model.parameters()))
    engine.training_step(setup, Moments([]))(torch.arange(10))
    assert not any(map(torch.equal, before, setup.model.parameters()))


class ByPhase(Instrument):
    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase_ends(self, phase: Phase) -> None:
        self.phases.append(phase)


class ByStep(Instrument):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def step_ends(self, step: int) -> None:
        self.steps.append(step)


@engines
def test_an_engine_shows_the_moments_that_it_says_it_shows(
    engine: Engine, make_setup: MakeSetup
) -> None:
    step, phase, grain = ByStep(), ByPhase(), GRAINS.index(engine.shows)
    needs = {"step": step, "phase": phase}
    shown = [one for name, one in needs.items() if grain >= GRAINS.index(name)]  # type: ignore[arg-type]
    one = member(make_setup(), *shown)
    train(engine.open([one]), [one])
    assert step.steps == (list(range(1, 23)) if step in shown else [])
    order = ["data", "transfer", "prepare", "zero_grad", "forward", "loss", "backward", "optimizer"]
    assert phase.phases[-8:] == (order if phase in shown else [])


def test_the_finest_moment_that_an_instrument_needs_counts() -> None:
    grains = [Moments(some).grain for some in ([Instrument()], [ByStep()], [ByStep(), ByPhase()])]
    assert grains == ["point", "step", "phase"]


def test_where_an_instrument_needs_more_eager_is_used_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Coarse(EagerEngine):
        name = "coarse"
        shows = "point"

    monkeypatch.setitem(ENGINES, "coarse", Coarse())
    coarse = TrainSpec().model_copy(update={"engine": "coarse"})
    assert engine_for(coarse, [Moments([Instrument()])])[0].name == "coarse"
    engine, why = engine_for(coarse, [Moments([Instrument()]), Moments([ByStep()])])
    assert engine.name == "eager"
    assert why == note("engine_too_coarse", engine="coarse", needed="step", shows="point")


class CountsCalls(nn.Module):
    """Its steps grow smaller the more often it was called in training."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.calls = nn.Linear(8, 3), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += self.training
        return self.last(inputs) / self.calls if self.training else self.last(inputs)  # type: ignore[no-any-return]


class Sensitive(nn.Module):
    """Looks at its own derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.last = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        images = inputs.reshape(-1, 1, 8, 1).expand(-1, 1, 8, 8).contiguous()
        hidden, slope = torch.func.jvp(self.wide, (images,), (torch.ones_like(images),))
        return self.last((hidden.tanh() + 0.1 * slope).flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("model", [CountsCalls, Sensitive])
@pytest.mark.parametrize("name", ["tuned", pytest.param("compiled", marks=compiles)])
def test_an_engine_leaves_a_model_as_it_was_before_its_first_update(
    name: str, model: type[nn.Module], make_setup: MakeSetup, tiny: Workload
) -> None:
    workload = replace(tiny, model=model)
    ours, reference = (
        trained(ENGINES[one], make_setup(workload=workload, epochs=1)) for one in (name, "eager")
    )
    assert ours.progress.final == pytest.approx(reference.progress.final, rel=1e-4)
