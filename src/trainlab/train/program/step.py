"""One step of all trials of a group, from gathering its batches to adding up losses, without arguments."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainlab.train.operators import FailedError, Operators, failed_alone
from trainlab.train.program.noise import GivenNoise, LaneNoise
from trainlab.train.program.stacked import Stacked
from trainlab.train.program.sums import LaneSums
from trainlab.train.program.updates import LaneUpdate
from trainlab.train.setup import Setup
from trainlab.train.steps.meter import per_sample
from trainlab.train.watch import ProgramWatch
from trainlab.workloads.user_code import LOSS, MODEL, PREPARE


class Gradients:
    """The gradients that an update works on: those of the step, or the sum where they are never reset."""

    def __init__(self, setups: Sequence[Setup], rows: Tensor, *, are_used_up: bool) -> None:
        """`are_used_up`: the update changes what it is given."""
        self._are_used_up = are_used_up
        resets = [setup.settings.zero_grad for setup in setups]
        self._resets = torch.tensor(resets, device=rows.device).unsqueeze(1)
        self._all_reset = all(resets)
        self.rows = torch.zeros_like(rows)
        """Of the last step, or summed since the start of the trial; what parameters show as `.grad`."""

    @property
    def place(self) -> Tensor | None:
        """Where those of a step can be written to at once; None where they are needed apart."""
        return self.rows if self._all_reset and not self._are_used_up else None

    def taken_in(self, of_step: Tensor) -> Tensor:
        """What the optimizer gets to see."""
        if of_step is self.rows:
            return of_step
        if self._all_reset:
            self.rows.copy_(of_step)
            return of_step
        # Not by a product: zero times a gradient that is not finite is none either.
        self.rows.copy_(torch.where(self._resets, of_step, self.rows + of_step))
        return self.rows.clone() if self._are_used_up else self.rows

    def show(self, model: nn.Module, row: int, stacked: Stacked) -> None:
        """Lets the parameters of a model show their gradients, for instruments that look at points."""
        parameters = dict(model.named_parameters())
        for name, place in stacked.places.items():
            parameter = parameters[name]
            parameter.grad = self.rows[row, place].view(parameter.shape)


@dataclass(frozen=True)
class Group:
    """What the steps of a group share, whatever the size of their batches."""

    setups: Sequence[Setup]
    stacked: Stacked
    update: LaneUpdate
    gradients: Gradients
    sums: LaneSums
    position: Tensor
    """The step of the epoch that comes next, on the device."""
    is_vectorised: bool
    """Whether all trials run as one vectorised function; else there is one, run as it is."""
    watch: ProgramWatch | None
    """Sees the steps from inside."""
    tuned: Callable[[], AbstractContextManager[None]] = nullcontext
    """Inside, layers of the first model are computed in the fastest ways."""


class GroupStep:
    """Steps of one batch size; the rows of each are found at the group's position."""

    def __init__(self, group: Group, rows: Tensor, noise: LaneNoise | None) -> None:
        """`rows` (steps x trials x samples) is filled anew for every epoch."""
        self.rows, self._group, self._noise = rows, group, noise
        setup = group.setups[0]
        self._model, self._workload, self._loss = setup.model, setup.workload, setup.loss
        self._batches = setup.split_batches
        self._autocasts = setup.settings.precision == "bf16"
        self._device_type = setup.device.type
        self.operators: Operators | None = None
        """What runs the passes without Python, where they are recorded."""

    def __call__(self) -> None:
        """The step at the group's position."""
        group = self._group
        place = group.position if len(self.rows) > 1 else torch.zeros_like(group.position)
        losses, values, gradients = self.run(self.rows.index_select(0, place)[0])
        with torch.no_grad():
            taken = group.gradients.taken_in(gradients)
            if group.watch is not None:
                group.watch.gradients_ready(group.stacked.by_name(taken))
            group.update.step(taken)
            if group.watch is not None:
                group.watch.update_ends()
            group.sums.add(group.position, losses, values, self.rows.shape[2])
            group.position.add_(1)

    def run(self, rows: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Losses, metrics' values and gradients of every trial on its rows of the data."""
        given = self._given(rows)
        try:
            losses, *values, gradients = (self.operators or self._from_python)(*given)
        except FailedError as failed:
            self._from_python(*given)  # tells what is wrong in the user's words
            raise failed_alone(failed) from failed
        place = self._group.gradients.place
        return losses, values, gradients if place is None else place

    def record(self, rows: Tensor) -> None:
        """From here on the passes are run as torch's operators, without Python. Runs them once."""
        self.operators = Operators(self._from_python, self._given(rows))

    def _given(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The samples of a step, once its noise is drawn."""
        stored, targets = self._batches.gather(rows.reshape(-1))
        if self._noise is not None:
            self._noise.draw()
        if not self._group.is_vectorised:
            return stored, targets
        shape = tuple(rows.shape)
        return stored.unflatten(0, shape), targets.unflatten(0, shape)

    def _from_python(self, stored: Tensor, targets: Tensor) -> Sequence[Tensor]:
        """Losses, values, and gradients where they are no longer than this step."""
        group = self._group
        if group.is_vectorised:
            noise = () if self._noise is None else tuple(self._noise.rows)
            learned = group.stacked.learned
            losses, values = vmap(self._lane)(
                learned, group.stacked.fixed, group.stacked.buffers, noise, stored, targets
            )
            leaves = list(learned.values())
        else:
            with group.tuned():
                loss, alone = self._forward(self._model, stored, targets)
            losses, values = loss.unsqueeze(0), [one.unsqueeze(0) for one in alone]
            own = dict(self._model.named_parameters())
            leaves = [own[name] for name in group.stacked.places]
        found = torch.autograd.grad(losses.sum(), leaves)
        if group.watch is not None:
            group.watch.backward_ends()
        by_name = dict(zip(group.stacked.places, found, strict=True))
        row = group.stacked.row_of(by_name, group.gradients.place)
        return [losses.detach(), *values, row]

    def _lane(
        self,
        learned: dict[str, Tensor],
        fixed: dict[str, Tensor],
        buffers: dict[str, Tensor],
        noise: tuple[Tensor, ...],
        stored: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """One trial, as vmap sees it."""

        def model(inputs: Tensor) -> Tensor:
            tensors = {**learned, **fixed, **buffers}
            outputs: Tensor = functional_call(self._model, tensors, (inputs,))
            return outputs

        with GivenNoise(noise) if noise else nullcontext(), self._group.tuned():
            return self._forward(model, stored, targets)

    def _forward(
        self, model: Callable[[Tensor], Tensor], stored: Tensor, targets: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        with PREPARE:
            inputs = self._workload.prepare(stored)
        # Without autocast's cache: a copy of a weight that a graph keeps would go stale.
        autocast = torch.autocast(
            self._device_type, torch.bfloat16, enabled=self._autocasts, cache_enabled=False
        )
        with autocast, self._watching(len(targets)):
            with MODEL:
                outputs = model(inputs)
            with LOSS:
                loss = self._loss(outputs, targets)
        outputs = outputs.detach()
        values = [
            per_sample(name, metric(outputs, targets), len(targets))
            for name, metric in self._workload.sample_metrics.items()
        ]
        return loss, values

    def _watching(self, num_samples: int) -> AbstractContextManager[None]:
        watch = self._group.watch
        return nullcontext() if watch is None else watch.forward(num_samples)
