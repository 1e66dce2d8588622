"""Time left, with a clock that only moves when told."""

import pytest

from fabricate import made_study
from trainlab.cli.progress.time_left import FIRST_GUESS_S, Pace
from trainlab.plan import plan
from trainlab.record.trial import TrialRecord
from trainlab.spec import CostSpec, Study


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(study: Study) -> tuple[Pace, Clock, list[str]]:
    trials = [TrialRecord(**trial.model_dump(mode="json")) for trial in plan(study)]
    clock = Clock()
    return Pace(trials, clock), clock, [trial.id for trial in trials]


@pytest.fixture
def four() -> tuple[Pace, Clock, list[str]]:
    """Two cells, two seeds."""
    return started(made_study(vary={"batch_size": (1, 64)}, seeds=2))


def test_nothing_is_said_before_anything_is_known(four: tuple[Pace, Clock, list[str]]) -> None:
    pace, _, ids = four
    pace.begins(ids[0])
    assert pace.left_s() is None
    assert (pace.number, pace.num_trials) == (1, 4)
    assert pace.share_done() == 0


def test_the_trial_that_runs_says_how_long_all_may_take(
    four: tuple[Pace, Clock, list[str]],
) -> None:
    pace, clock, ids = four
    pace.begins(ids[0])
    clock.now += 5
    pace.is_at(0.5)
    assert pace.left_s() == 35
    assert pace.share_done() == pytest.approx(5 / 40)


def test_a_trial_should_take_as_long_as_the_most_similar_did(
    four: tuple[Pace, Clock, list[str]],
) -> None:
    pace, clock, ids = four
    pace.begins(ids[0])
    clock.now += 10
    pace.ends()
    # Nothing else is known: all should take as long.
    assert pace.left_s() == 30
    pace.begins(ids[1])
    clock.now += 2
    pace.ends()
    # Each cell once more, each as long as its like.
    assert pace.left_s() == 12
    assert pace.share_done() == pytest.approx(0.5)


def test_time_left_counts_down_while_nothing_is_reported(
    four: tuple[Pace, Clock, list[str]],
) -> None:
    pace, clock, ids = four
    pace.begins(ids[0])
    clock.now += 10
    pace.ends()
    pace.begins(ids[1])
    assert pace.left_s() == 30
    clock.now += 4
    assert pace.left_s() == 26
    clock.now += 60  # longer than expected: the rest is still to come
    assert pace.left_s() == 20


def test_a_trial_under_way_is_judged_by_its_own_speed(four: tuple[Pace, Clock, list[str]]) -> None:
    pace, clock, ids = four
    pace.begins(ids[0])
    clock.now += 10
    pace.ends()
    pace.begins(ids[1])
    clock.now += 3
    pace.is_at(0.25)
    assert pace.left_s() == pytest.approx(9 + 20)


def test_trials_that_never_ran_are_passed_over(four: tuple[Pace, Clock, list[str]]) -> None:
    pace, clock, ids = four
    pace.begins(ids[2])
    clock.now += 10
    pace.ends()
    assert (pace.number, pace.left_s()) == (3, 10)


def test_at_the_end_nothing_is_left(four: tuple[Pace, Clock, list[str]]) -> None:
    pace, clock, ids = four
    shares = []
    for one in ids:
        pace.begins(one)
        shares.append(pace.share_done())
        clock.now += 1
        pace.ends()
    assert (pace.left_s(), pace.share_done()) == (0, 1)
    assert shares == sorted(shares)


def test_cost_trials_are_expected_by_what_they_look_at() -> None:
    study = made_study(
        vary={"batch_size": (1, 64)}, seeds=1, learn=False, cost=CostSpec(processes=1)
    )
    pace, clock, ids = started(study)
    took = {"process1": 3.0, "operators": 7.0, "layers": 5.0}
    for one in ids:
        pace.begins(one)
        clock.now += took[one.rpartition("-")[2]]
        pace.ends()
    assert [pace.expected_s(one) for one in ids] == [took[one.rpartition("-")[2]] for one in ids]


def test_a_single_trial_knows_its_time_from_its_own_speed() -> None:
    pace, clock, (only,) = started(made_study(seeds=1))
    pace.begins(only)
    assert pace.left_s() is None
    clock.now += 2
    pace.is_at(0.2)
    assert pace.left_s() == pytest.approx(8)


def test_starting_processes_is_time_of_its_own() -> None:
    study = made_study(
        vary={"batch_size": (1, 64)}, seeds=1, learn=False, cost=CostSpec(processes=1)
    )
    pace, clock, ids = started(study)
    assert len(ids) == 7
    pace.starting([(one,) for one in ids[:2]])
    assert pace.left_s() is None
    clock.now += 4
    pace.started()
    for one in ids[:2]:
        pace.begins(one)
        clock.now += 1
        pace.ends()
    # Five more, each with its start.
    assert pace.left_s() == 5 * (1 + 2)
    pace.starting([(ids[2],), (ids[3],)])
    clock.now += 1.5
    assert pace.left_s() == 15 - 1.5
    clock.now += 2.5
    pace.started()
    assert pace.left_s() == 11
    assert pace.share_done() == pytest.approx(10 / 21)


def test_training_says_nothing_about_what_cost_trials_take() -> None:
    pace, clock, ids = started(made_study(seeds=1, cost=CostSpec(processes=1)))
    assert len(ids) == 4
    pace.begins(ids[0])
    clock.now += 100
    pace.ends()
    assert pace.left_s() == 3 * FIRST_GUESS_S
    pace.begins(ids[1])
    clock.now += 6
    pace.ends()
    assert pace.left_s() == 2 * 6


def test_trials_of_one_process_share_its_time() -> None:
    pace, clock, ids = started(made_study(seeds=1, learn=False, cost=CostSpec(processes=1)))
    assert len(ids) == 3
    pace.begins(ids[0])
    clock.now += 2
    pace.ends()
    pace.begins(*ids[1:])
    assert (pace.number, pace.left_s()) == (3, 4)
    clock.now += 10
    pace.ends()
    assert [pace.expected_s(one) for one in ids] == [2, 5, 5]
    assert (pace.left_s(), pace.share_done()) == (0, 1)
