"""Time left, with a clock that only moves when told."""

import pytest

from fabricate import made_study
from trainlab.lab.run_progress import TimeLeft
from trainlab.plan import bench_of, plan, trials_of
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec, Study


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(study: Study) -> tuple[TimeLeft, Clock, list[str]]:
    trials = [TrialRecord(**trial.model_dump(mode="json")) for trial in trials_of(plan(study))]
    clock = Clock()
    return TimeLeft(trials, clock), clock, [trial.id for trial in trials]


@pytest.fixture
def four() -> tuple[TimeLeft, Clock, list[str]]:
    """Two cells, two seeds."""
    return started(made_study(vary={"batch_size": (1, 64)}, seeds=2))


def test_nothing_is_said_before_anything_is_known(four: tuple[TimeLeft, Clock, list[str]]) -> None:
    left, _, ids = four
    left.group_begins(ids[0])
    assert left.left_s() is None
    assert (left.number, left.num_trials) == (1, 4)
    assert left.share_done() == 0


def test_the_trial_that_runs_says_how_long_all_may_take(
    four: tuple[TimeLeft, Clock, list[str]],
) -> None:
    left, clock, ids = four
    left.group_begins(ids[0])
    clock.now += 5
    left.progress(ids[0], 0.5)
    assert left.left_s() == 35
    assert left.share_done() == pytest.approx(5 / 40)


def test_a_trial_should_take_as_long_as_the_most_similar_did(
    four: tuple[TimeLeft, Clock, list[str]],
) -> None:
    left, clock, ids = four
    left.group_begins(ids[0])
    clock.now += 10
    left.group_ends(ids[0])
    # Nothing else is known: all should take as long.
    assert left.left_s() == 30
    left.group_begins(ids[1])
    clock.now += 2
    left.group_ends(ids[1])
    # Each cell once more, each as long as its like.
    assert left.left_s() == 12
    assert left.share_done() == pytest.approx(0.5)


def test_time_left_counts_down_while_nothing_is_reported(
    four: tuple[TimeLeft, Clock, list[str]],
) -> None:
    left, clock, ids = four
    left.group_begins(ids[0])
    clock.now += 10
    left.group_ends(ids[0])
    left.group_begins(ids[1])
    assert left.left_s() == 30
    clock.now += 4
    assert left.left_s() == 26
    clock.now += 60  # longer than expected: the rest is still to come
    assert left.left_s() == 20


def test_a_trial_under_way_is_judged_by_its_own_speed(
    four: tuple[TimeLeft, Clock, list[str]],
) -> None:
    left, clock, ids = four
    left.group_begins(ids[0])
    clock.now += 10
    left.group_ends(ids[0])
    left.group_begins(ids[1])
    clock.now += 3
    left.progress(ids[1], 0.25)
    assert left.left_s() == pytest.approx(9 + 20)


def test_trials_trained_together_take_their_share_of_the_time(
    four: tuple[TimeLeft, Clock, list[str]],
) -> None:
    left, clock, ids = four
    left.group_begins(*ids[:2])
    clock.now += 5
    left.progress(ids[0], 0.5)
    assert left.expected_s(ids[3]) == 5
    assert left.left_s() == 5 + 2 * 5


def test_at_the_end_nothing_is_left(four: tuple[TimeLeft, Clock, list[str]]) -> None:
    left, clock, ids = four
    shares = []
    for one in ids:
        left.group_begins(one)
        shares.append(left.share_done())
        clock.now += 1
        left.group_ends(one)
    assert (left.left_s(), left.share_done()) == (0, 1)
    assert shares == sorted(shares)


def test_starting_processes_is_time_of_its_own() -> None:
    study = made_study(
        vary={"batch_size": (1, 64)}, seeds=1, learn=False, cost=CostSpec(processes=1)
    )
    left, clock, ids = started(study)
    assert len(ids) == 8
    left.starting([(one,) for one in ids[:2]])
    assert left.left_s() is None
    clock.now += 4
    left.ready()
    for one in ids[:2]:
        left.group_begins(one)
        clock.now += 1
        left.group_ends(one)
    # Six more, each with its start.
    assert left.left_s() == 6 * (1 + 2)
    left.starting([(ids[2],), (ids[3],)])
    clock.now += 1.5
    assert left.left_s() == 18 - 1.5
    clock.now += 2.5
    left.ready()
    assert left.left_s() == 14
    assert left.share_done() == pytest.approx(10 / 24)


def test_processes_that_take_turns_are_timed_together_and_further_ones_are_added() -> None:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=1, learn=False, cost=CostSpec(processes=1))
    left, clock, ids = started(study)
    left.group_begins(*ids[:4])
    clock.now += 8
    left.group_ends(*ids[:4])
    assert left.left_s() == 4 * 2
    more = [
        TrialRecord(**t.model_dump(mode="json")) for t in trials_of(bench_of(study, "train", 2))
    ]
    left.plan_more(more)
    assert (left.num_trials, left.left_s()) == (12, 8 * 2)
    left.group_begins(*(trial.id for trial in more))
    left.progress(more[0].id, 0.5)
    clock.now += 4
    assert left.left_s() == 4 + 4 * 2


def test_trials_side_by_side_share_the_time_that_is_left(
    four: tuple[TimeLeft, Clock, list[str]],
) -> None:
    left, clock, ids = four
    for one in ids[:2]:
        left.group_begins(one, num_side_by_side=2)
    clock.now += 5
    left.progress(ids[0], 0.5)
    left.progress(ids[1], 0.25)
    # 5 s and 15 s of those that run, 15 s each of two more, two at a time.
    assert left.left_s() == pytest.approx((5 + 15 + 2 * 15) / 2)
    clock.now += 5
    left.group_ends(ids[0])
    left.progress(ids[1], 0.5)
    assert (left.number, left.left_s()) == (2, pytest.approx((10 + 10 + 10) / 2))
    assert left.share_done() == pytest.approx(10 / 25)
