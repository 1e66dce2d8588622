"""Probes of a script's model: its calls are seen from the moment that the model itself has been called."""

from typing import Any

from torch import nn

from trainlab.errors import SpecError
from trainlab.instruments.probes.instrument import Probes
from trainlab.train.opaque import is_opaque


class ScriptProbes(Probes):
    """The same probes as of a workload."""

    def epoch_begins(self, epoch: int) -> None:
        self._periods.epoch = epoch

    def called(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """The model, or what holds it, has just been called for training. SpecError where nobody can see
        what it calls."""
        if self._calls is None:
            return
        if is_opaque(module):
            rule = "the model is compiled or scripted, and what is inside it cannot be seen"
            spec = next(spec for spec in self._specs if not spec.is_of_parameters)
            raise SpecError([f"probe {spec}: {rule}; probe parameters, or leave the compiling out"])
        # For the call alone: between two of them nothing of ours is left in torch.
        self._calls.watch.install()
        self.forward_begins()
        self._calls.watch.enter(module, arguments)

    def returned(self) -> None:
        """That call has ended, or was given up."""
        if self._calls is not None:
            self._calls.watch.uninstall()

    def check_selectors(self) -> None:
        """After the first step: SpecError for a selector that reaches nothing, with what there is."""
        if self._calls is not None:
            self._calls.check_known()

    def flush_values(self) -> None:
        """Writes what has been reduced so far."""
        self._write_closed()
