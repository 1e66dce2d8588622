"""How many runs failed to learn in two cells, and whether that differs beyond chance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Failures:
    """Runs of two cells, and how many of each ended without a finite value."""

    num_a: int
    of_a: int
    num_b: int
    of_b: int
    num_left_out: int
    """Seeds that both cells have and of which at least one failed."""

    @classmethod
    def of(cls, a: Mapping[int, float], b: Mapping[int, float]) -> "Failures":
        """From the final values by seed."""
        failed_a, failed_b = ({s for s, v in x.items() if not math.isfinite(v)} for x in (a, b))
        left_out = (failed_a | failed_b) & a.keys() & b.keys()
        return cls(len(failed_a), len(a), len(failed_b), len(b), len(left_out))

    @property
    def differ(self) -> bool:
        """Whether the one cell failed more often than the other, be it by chance."""
        return self.num_a * self.of_b != self.num_b * self.of_a

    @property
    def p(self) -> float | None:
        """Fisher's exact test, two-sided; `None` where nothing failed or a cell has no runs."""
        if not (self.num_a or self.num_b) or not (self.of_a and self.of_b):
            return None
        return fisher(self.num_a, self.of_a, self.num_b, self.of_b)


def fisher(num_a: int, of_a: int, num_b: int, of_b: int) -> float:
    """The chance of counts as unlikely as these where both cells fail equally often."""
    failed, total = num_a + num_b, of_a + of_b

    def ways(in_a: int) -> int:
        return math.comb(of_a, in_a) * math.comb(of_b, failed - in_a)

    every = [ways(in_a) for in_a in range(max(0, failed - of_b), min(of_a, failed) + 1)]
    return sum(count for count in every if count <= ways(num_a)) / math.comb(total, failed)
