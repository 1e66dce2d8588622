"""Every moment belongs to one part: what calls of torch tell, and what is settled only later."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlab.watching.seeing.timeline import (
    LOSS,
    OPTIMIZER,
    OTHER,
    PARTS,
    PREPARE,
    ZERO_GRAD,
    Timeline,
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def played(events: Sequence[tuple[int, Callable[[Timeline], object]]]) -> tuple[Timeline, list]:
    """The timeline after events that come so long after one another; and the parts of each step."""
    clock = Clock()
    timeline, steps = Timeline(clock), []
    for after, event in events:
        clock.now += after
        found = event(timeline)
        if isinstance(found, list):
            steps.append(named(found))
    return timeline, steps


def named(parts: Sequence[int]) -> dict[str, int]:
    return {name: spent for name, spent in zip(PARTS, parts, strict=True) if spent}


def data(t: Timeline) -> None:
    t.data_begins()


def given_batch(t: Timeline) -> None:
    t.end(PREPARE)


def forward(t: Timeline) -> None:
    t.forward_begins(is_repeated=False)


def forward_again(t: Timeline) -> None:
    t.forward_begins(is_repeated=True)


def forwarded(t: Timeline) -> None:
    t.end(LOSS)


def backward(t: Timeline) -> None:
    t.backward_begins()


def ended(t: Timeline) -> None:
    t.end(OTHER)


def update(t: Timeline) -> None:
    t.begin(OPTIMIZER)


def zero_grad(t: Timeline) -> None:
    t.begin(ZERO_GRAD)


def step(t: Timeline) -> list[int]:
    return t.step_ends()


STEP = [
    *((1, data), (2, given_batch), (3, zero_grad), (4, ended), (5, forward), (6, forwarded)),
    *((7, backward), (8, ended), (9, update), (10, ended), (0, step)),
]
EVALUATION = [(1, data), (2, given_batch), (3, forward), (4, forwarded)]


def test_a_plain_step_is_divided_among_its_calls_and_what_lies_between() -> None:
    timeline, (first, second) = played([*STEP, *STEP])
    expected = {
        "data": 2,
        "prepare": 3,
        "zero_grad": 4,
        "forward": 6,
        "loss": 7,
        "backward": 8,
        "optimizer": 10,
        "other": 5 + 9,
    }
    # What comes before the first batch is the start of the process.
    assert first == expected
    assert second == {**expected, "other": 1 + 5 + 9}
    assert named(timeline.finish())["startup"] == 1


def test_a_pass_that_no_backward_pass_follows_is_evaluation() -> None:
    timeline, steps = played([*STEP, *EVALUATION, *EVALUATION, *STEP])
    assert steps[0] == {**steps[1], "other": steps[0]["other"]}
    total = named(timeline.finish())
    # The pass itself and what lies between it and the next batch.
    assert total["evaluation"] == 2 * (2 + 3 + 4) + 1 + 1
    assert timeline.num_evaluation_passes == 2


def test_evaluation_without_a_loader_is_told_by_the_model_running_again() -> None:
    without = [(5, forward), (6, forwarded)]
    train = [(5, forward), (6, forwarded), (7, backward), (8, ended), (9, update), (10, ended)]
    events = [*train, (0, step), *without, (5, forward_again), *train[1:], (0, step)]
    timeline, steps = played(events)
    assert timeline.num_evaluation_passes == 1
    assert steps[1]["forward"] == steps[0]["forward"] == 6
    assert named(timeline.finish())["evaluation"] == 5 + 6 + 5


def test_the_passes_of_a_closure_lie_within_the_update() -> None:
    closure = [(1, forward), (2, forwarded), (3, backward), (4, ended)]
    timeline, steps = played([(1, update), *closure, *closure, (5, ended), (0, step)])
    assert steps == [{"forward": 4, "backward": 8, "optimizer": 1 + 3 + 1 + 3 + 5}]
    assert named(timeline.finish()) == {**steps[0], "startup": 1}


def test_pauses_count_nowhere() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    clock.now = 5
    timeline.pause()
    clock.now = 100
    timeline.go_on()
    clock.now = 103
    assert sum(timeline.finish()) == 8


EVENTS = (data, given_batch, forward, forward_again, forwarded, backward, ended, update, step)


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(EVENTS)), max_size=60))
def test_whatever_is_called_the_parts_add_up(
    events: list[tuple[int, Callable[[Timeline], object]]],
) -> None:
    timeline, _ = played(events)
    assert sum(timeline.finish()) == sum(after for after, _ in events)
    assert min(timeline.total_ns) >= 0


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_named_once(name: str) -> None:
    assert PARTS.count(name) == 1
