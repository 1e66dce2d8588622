"""network.json: the calls of one forward pass, so that a report can draw the network without timing it."""

import contextlib
import io
import warnings
from collections.abc import Iterator

from torch import nn

from trainlab.data.nesting import count_of
from trainlab.errors import reason_in
from trainlab.instruments.calls import Call, CallRecorder, PassCost
from trainlab.record.cost_record import CallRow, NetworkRecord
from trainlab.train.callbacks import Arguments, Instrument, Phase, TrialView
from trainlab.train.opaque import opaque_names, uncompiled_copy
from trainlab.train.seeds import seeded

MOST_SAMPLES = 256
"""Of the batch that is run: a larger one would take time and memory and show the same network."""


class Network(Instrument):
    """Runs a copy of the model once, before the first update; what cannot be run so is noted."""

    goes_on = True

    def trial_begins(self, view: TrialView) -> None:
        try:
            with seeded(view.trial.seed, "network", device=view.device), _quiet():
                given = view.model_inputs(min(view.trial.settings.batch_size, MOST_SAMPLES))
                model = uncompiled_copy(view.model).train()
                rows = traced(model, given)
                size = count_of(given)
        except Exception as error:  # noqa: BLE001  the user's model may raise anything
            view.note("network_failed", kind=type(error).__name__, reason=reason_in(error))
            return
        if names := opaque_names(model):
            view.note("not_seen_inside", names=", ".join(names))
        if rows:
            view.folder.network.write(NetworkRecord(batch_size=size, rows=rows))


def traced(model: nn.Module, given: Arguments) -> list[CallRow]:
    """The calls of one forward pass with these arguments, in their order."""
    recorder = CallRecorder(model, _Unmeasured())
    recorder.watch.install()
    try:
        recorder.watch.start_watching()
        arguments, named = given
        model(*arguments, **named)
    finally:
        recorder.watch.uninstall()
        recorder.release_graph()
    unseen = {id(parameter): parameter.numel() for parameter in model.parameters()}
    return [_row(call, unseen) for call in recorder.calls]


def _row(call: Call, unseen: dict[int, int]) -> CallRow:
    return CallRow(
        name=call.name,
        call=call.number,
        kind=call.kind,
        type=call.type,
        phase=call.phase,
        inputs=sorted(call.inputs),
        output_shapes=call.output_shapes,
        num_parameters=sum(unseen.pop(parameter, 0) for parameter in call.parameters),
    )


class _Unmeasured:
    """Measures nothing of a step."""

    def begin(self) -> None: ...

    def phase_ends(self, phase: Phase) -> None: ...

    def passes_go_on(self) -> None: ...

    def end(self) -> None: ...

    def pass_begins(self, cost: PassCost) -> None: ...

    def pass_ends(self, cost: PassCost) -> None: ...


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the model prints or warns about comes once, from the training."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
