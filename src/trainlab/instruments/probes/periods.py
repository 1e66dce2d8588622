"""Periods: over how many updates each probe is reduced, and what its channels have when one ends."""

from collections.abc import Sequence

from trainlab.instruments.probes.channels import Channels, ClosedPeriod
from trainlab.instruments.probes.layers import ProbedCalls
from trainlab.instruments.probes.parameters import ProbedParameters
from trainlab.spec.probe import ProbeSpec

MAX_PENDING = 4096
"""Results on the device that wait for the host."""
GRACE_STEPS = 20
"""A function may be called in some steps only; after so many without it a selector is a mistake."""


class Periods:
    """The periods of all probes of a trial, or of trials that are updated together."""

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        channels: Channels,
        parameters: ProbedParameters,
        calls: ProbedCalls | None,
    ) -> None:
        self.epoch = self.step = 0
        self.closed: list[ClosedPeriod] = []
        """Results on the device that wait for the host."""
        self._channels, self._parameters, self._calls = channels, parameters, calls
        self._num_steps: dict[ProbeSpec, int] = dict.fromkeys(specs, 0)
        self._checked = calls is None

    @property
    def steps_ahead(self) -> int | None:
        """Updates until the next period ends; None where none does before the epoch."""
        left = [_length(spec) - num_steps for spec, num_steps in self._num_steps.items()]
        return min((int(steps) for steps in left if steps < float("inf")), default=None)

    def steps_done(self, step: int, num_steps: int) -> None:
        """So many further updates, the last of them that step; no period ends before it."""
        self.step = step
        for spec in self._num_steps:
            self._num_steps[spec] += num_steps
            if self._num_steps[spec] == _length(spec):
                self._close(spec)
        if not self._checked and self._calls is not None:
            self._checked = self._calls.check(step >= GRACE_STEPS)

    def epoch_ends(self) -> None:
        """Raises where a probe has never fired; closes the epoch's periods."""
        if self._calls is not None and self.epoch == 1:
            self._calls.check(last_chance=True)
        self._parameters.check()
        for spec, num_steps in self._num_steps.items():
            if spec.every == "epoch" and num_steps:
                self._close(spec)

    def go_on(self) -> None:
        """After an earlier attempt, which may have seen every selector work."""
        self._checked = self._calls is None or self._calls.check(last_chance=False)

    def close_open(self) -> None:
        """A period that the trial ended in, diverged or interrupted, is recorded with its steps."""
        for spec, _ in self.open():
            self._close(spec)

    def open(self) -> list[tuple[ProbeSpec, int]]:
        """The probes that are in a period, and its updates so far."""
        return [(spec, steps) for spec, steps in self._num_steps.items() if steps]

    def take_closed(self) -> list[ClosedPeriod]:
        """What has closed since it was last taken."""
        closed, self.closed = self.closed, []
        return closed

    def _close(self, spec: ProbeSpec) -> None:
        if spec.quantity == "weight":
            self._parameters.read_weights(spec)
        num_steps, self._num_steps[spec] = self._num_steps[spec], 0
        for channel in self._channels.of(spec):
            closed = channel.close(self.epoch, self.step, num_steps)
            if closed is not None:
                self.closed.append(closed)


def _length(spec: ProbeSpec) -> float:
    """The updates of a period."""
    if spec.every == "epoch":
        return float("inf")
    return 1 if spec.every == "step" else spec.every
