"""Followed: the losses whose gradients each step has applied. Of a long training nearly all steps are
alike, and are kept as one entry for many."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

Places = Mapping[str, tuple[int, ...]]
"""By metric, the places among the losses whose sum an optimizer has followed."""


class Followed(Sequence[Places]):
    """Of each step."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        """The first step of each entry."""
        self._entries: list[tuple[str, int] | Places] = []
        """Steps that followed one loss each under this name, the first of them from this place on; or what
        a single step followed."""
        self._num_steps = 0

    def __len__(self) -> int:
        return self._num_steps

    def __getitem__(self, step: int) -> Places:  # type: ignore[override]
        """Of one step; it may be counted from the end."""
        number = step if step >= 0 else step + self._num_steps
        if not 0 <= number < self._num_steps:
            raise IndexError(step)
        entry = bisect_right(self._firsts, number) - 1
        kept = self._entries[entry]
        if not isinstance(kept, tuple):
            return kept
        name, place = kept
        return {name: (place + number - self._firsts[entry],)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def append(self, places: Places) -> None:
        """Of the next step."""
        self._add(places, 1)

    def extend_alike(self, name: str, place: int, num_steps: int) -> None:
        """The next steps follow one loss each, from this place on."""
        self._add((name, place), num_steps)

    def _add(self, entry: tuple[str, int] | Places, num_steps: int) -> None:
        self._firsts.append(self._num_steps)
        self._entries.append(entry)
        self._num_steps += num_steps

    def sums(self, losses: Sequence[float], first: int, end: int) -> dict[str, list[float]]:
        """What was followed in these steps, by metric."""
        found: dict[str, list[float]] = {}
        for begin, stop, kept, start in self._entries_between(first, end):
            if isinstance(kept, tuple):
                name, place = kept
                of_steps = losses[place + begin - start : place + stop - start]
                found.setdefault(name, []).extend(of_steps)
                continue
            for name, places in kept.items():
                if places:
                    found.setdefault(name, []).append(sum([losses[place] for place in places]))
        return found

    def _entries_between(
        self, first: int, end: int
    ) -> Iterator[tuple[int, int, tuple[str, int] | Places, int]]:
        """The steps of each entry that lie between, the entry, and its first step."""
        end = min(end, self._num_steps)
        entry = max(0, bisect_right(self._firsts, first) - 1)
        while entry < len(self._entries) and self._firsts[entry] < end:
            start = self._firsts[entry]
            later = self._firsts[entry + 1] if entry + 1 < len(self._firsts) else self._num_steps
            yield max(first, start), min(end, later), self._entries[entry], start
            entry += 1
