"""Which calls of one step are those of another, where a loop runs more often in one of them."""

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher


def aligned(known: Sequence[Hashable], new: Sequence[Hashable]) -> list[int | None]:
    """For each of the new ones its place among the known ones, None where it has none there. Places rise:
    what comes first in one comes first in the other.

    The ends are put together first: what follows a loop is then not taken for a further round of it.
    """
    num_last = _num_equal(_from_the_end(known, new))
    known_rest, new_rest = len(known) - num_last, len(new) - num_last
    num_first = _num_equal(list(zip(known[:known_rest], new[:new_rest], strict=False)))
    places: list[int | None] = [None] * len(new)
    for place in range(num_first):
        places[place] = place
    for place in range(num_last):
        places[new_rest + place] = known_rest + place
    between = SequenceMatcher(
        None, known[num_first:known_rest], new[num_first:new_rest], autojunk=False
    )
    for block in between.get_matching_blocks():
        for place in range(block.size):
            places[num_first + block.b + place] = num_first + block.a + place
    return places


def _from_the_end(
    first: Sequence[Hashable], second: Sequence[Hashable]
) -> list[tuple[Hashable, Hashable]]:
    """Of two sequences, the last with the last, and so on."""
    return list(zip(reversed(first), reversed(second), strict=False))


def _num_equal(pairs: Sequence[tuple[Hashable, Hashable]]) -> int:
    """How many of the first pairs are of equals."""
    return next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
