"""Where the memory of a timed process lies, which moves its steps by several percent.

Which cache lines two tensors share depends on their addresses, and these on all that the process has
allocated before: every process that does the same finds the same, so that more of them show no spread, and
an unrelated tensor made earlier makes the next figure another. The forward pass of an MNIST network took
10.0 to 11.9 ms by this alone (2026-11-18, two cores, batch 64). So each timed process begins at a place of
its own, and the figures of several differ by what they do not know.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import torch

MOST_BLOCKS: Final = 16
SMALLEST_LOG2, LARGEST_LOG2 = 10, 22
"""Of their sizes in bytes: from part of a page to more than most caches hold."""


@contextmanager
def random_layout(rng: random.Random | None = None) -> Iterator[None]:
    """What is made in this block lies where chance has put it: blocks of random sizes come before. They are
    never written, so that they take little more than addresses; where there are none left, fewer."""
    # Of its own: the random numbers of the process are the training's.
    rng = rng or random.Random()  # noqa: S311  no secret
    sizes = [
        int(2 ** rng.uniform(SMALLEST_LOG2, LARGEST_LOG2))
        for _ in range(rng.randint(1, MOST_BLOCKS))
    ]
    blocks: list[torch.UntypedStorage] = []
    with suppress(RuntimeError):
        # No tensors: these lie where the user's default device says, and may be filled.
        blocks += map(torch.UntypedStorage, sizes)
    try:
        yield
    finally:
        blocks.clear()
