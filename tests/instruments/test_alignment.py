"""Which calls of a step are those of another."""

from hypothesis import given
from hypothesis import strategies as st

from trainlab.instruments.calls import aligned

CALLS = st.lists(st.sampled_from("abc"), max_size=12)


def test_what_follows_a_loop_is_not_taken_for_a_further_round_of_it() -> None:
    assert aligned("araratro", "aratro") == [2, 3, 4, 5, 6, 7]
    assert aligned("aratro", "araratro")[-4:] == [2, 3, 4, 5]


@given(CALLS, CALLS)
def test_places_rise_and_are_of_equals(known: list[str], new: list[str]) -> None:
    found = list(zip(aligned(known, new), new, strict=True))
    places = [place for place, _ in found if place is not None]
    assert places == sorted(set(places))
    assert all(known[place] == call for place, call in found if place is not None)


@given(CALLS)
def test_a_step_is_its_own(calls: list[str]) -> None:
    assert aligned(calls, calls) == list(range(len(calls)))
