"""The peak of a step's memory, and what was alive at it: arithmetic on recorded changes, no device."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Blocks = dict[int, int]
"""Address of a storage to its bytes: views and shared tensors are counted once."""


@dataclass(frozen=True)
class Change:
    """A block allocated, or freed where its bytes are negative."""

    at_ns: int
    address: int
    num_bytes: int


@dataclass(frozen=True)
class Sighting:
    """The blocks of one kind at one moment of a step."""

    kind: str
    num_changes: int
    """Changes of the step made before that moment."""
    blocks: Blocks


@dataclass(frozen=True)
class ProfiledStep:
    """What was alive before a step, what it allocated and freed, and what its blocks were for."""

    before: Blocks
    changes: Sequence[Change]
    """In the order of time."""
    phase_ends: Sequence[tuple[int, str]]
    """Nanoseconds and name, in the order of time."""
    sightings: Sequence[Sighting] = ()
    """Of a kind seen twice, the second is its fullest: gradients before and after a step."""


@dataclass(frozen=True)
class Peak:
    """The moment of a step at which tensors held most."""

    num_bytes: int
    phase: str
    alive: Mapping[str, int]
    """Bytes of each kind that were alive then: not all are at once."""


def find_peak(step: ProfiledStep) -> Peak:
    """Where the bytes alive are most, and how many of them each kind has there."""
    live = Live(step.before)
    totals = [live.num_bytes]
    for change in step.changes:
        live.apply(change)
        totals.append(live.num_bytes)
    index = totals.index(max(totals))
    at_peak = Live(step.before, step.changes[:index])
    alive: dict[str, Blocks] = {}
    for seen in step.sightings:
        then = Live(step.before, step.changes[: seen.num_changes])
        still = {a: n for a, n in seen.blocks.items() if at_peak.holds_the_same(a, then)}
        alive[seen.kind] = alive.get(seen.kind, {}) | still
    at_ns = step.changes[index - 1].at_ns if index else 0
    return Peak(
        num_bytes=totals[index],
        phase=next((name for end_ns, name in step.phase_ends if end_ns >= at_ns), "other"),
        alive={kind: sum(blocks.values()) for kind, blocks in alive.items()},
    )


class Live:
    """The blocks alive after some changes; an address may come to hold one block after another."""

    def __init__(self, before: Blocks, changes: Iterable[Change] = ()) -> None:
        self.blocks = dict(before)
        self.num_bytes = sum(before.values())
        self._since: dict[int, int] = {}
        for change in changes:
            self.apply(change)

    def apply(self, change: Change) -> None:
        """A block whose allocation nobody saw was never counted, so its end is not either."""
        self.num_bytes -= self.blocks.pop(change.address, 0)
        if change.num_bytes > 0:
            self.blocks[change.address] = change.num_bytes
            self.num_bytes += change.num_bytes
        self._since[change.address] = change.at_ns

    def holds_the_same(self, address: int, other: "Live") -> bool:
        """Whether the address holds the very block that it holds there."""
        return address in self.blocks and self._since.get(address) == other._since.get(address)
