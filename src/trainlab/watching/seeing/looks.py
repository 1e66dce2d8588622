"""Looks: which steps of a training are seen whole. Of the others only the marks of a step are."""

import random
from collections import Counter
from typing import Literal

FIRST = 100
"""All of so many steps are seen whole."""
EVERY = 400
"""Then one of so many on average, at random: what a script does now and then is met by chance."""
AFTER = 5
"""Where something new happens, so many."""
USUAL, AFTER_USUAL = 10, 2
"""What has been new so often already is so no more: fewer are."""
LONG_NS = 20_000_000
"""Where most steps are as long as that all are: what seeing them takes is nothing beside it."""

News = Literal["pass", "test", "batch", "optimizer", "long"]
"""A pass over the data or a test begins, a batch comes from elsewhere, an optimizer was made, a step was
unusually long."""


class Looks:
    """Asked at the end of every step that was seen whole."""

    def __init__(self, num_steps: int | None = None) -> None:
        """`num_steps`: after so many the script is ended."""
        self._random = random.Random(0)  # noqa: S311  the script's own numbers are left alone
        self._whole_left, self._are_all = FIRST, False
        self._num_long = self._num_whole = 0
        self._num_news: Counter[News] = Counter()
        self._num_steps = num_steps

    def num_passed(self, step: int, spent_ns: int) -> int:
        """Steps to pass by after this one, which took so long; 0: the next is seen whole."""
        self._whole_left = max(0, self._whole_left - 1)
        # One that holds something else, a download say, tells nothing of the others.
        self._num_long += spent_ns > LONG_NS
        self._num_whole += 1
        if self._whole_left or self._are_all or 2 * self._num_long > self._num_whole:
            return 0
        number = self._random.randint(1, 2 * EVERY - 1)
        if self._num_steps is not None:  # the last of which is seen whole
            number = max(0, min(number, self._num_steps - step - 1))
        return number

    def something_new(self, kind: News) -> None:
        """A few steps are seen whole."""
        self._num_news[kind] += 1
        number = AFTER if self._num_news[kind] <= USUAL else AFTER_USUAL
        self._whole_left = max(self._whole_left, number)

    def see_all(self) -> None:
        """Something happens that only steps seen whole can tell."""
        self._are_all = True
