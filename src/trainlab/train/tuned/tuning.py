"""What of a trial is computed by other code than torch's: decided once per machine, then looked up."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainlab.errors import RecordError, said_by
from trainlab.record.schema import Note, note
from trainlab.train.opaque import opaque_names
from trainlab.train.optimizers import can_be_fused, make_optimizer
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.tuned.choices import NATIVE, TORCH, faster, kept_choice
from trainlab.train.tuned.layers import kind_of
from trainlab.train.tuned.library import WORTH_COMPILING, NoLibraryError, library, library_key
from trainlab.train.tuned.model import Call, TunedModel, WaysBySize, sample_calls
from trainlab.train.tuned.threads import faster_threads
from trainlab.train.tuned.update import NativeStep, native_class
from trainlab.train.tuned.ways import ALL_TORCH, Ways

MOST_SAMPLES = 64
"""Of the batch that layers are measured with; more take longer and change the order little."""


def tune_threads(setup: Setup) -> None:
    """Sets the number of threads with which such a model trains faster here."""
    if not _is_on_cpu(setup) or opaque_names(setup.model):  # a copy would be compiled once more
        return
    try:
        threads = faster_threads(setup)
    except RecordError as error:
        _add_note(setup, note("tuned_not_kept", error=str(error)))
        return
    torch.set_num_threads(threads)
    record_choice(setup, "threads", threads)


def tune_update(setup: Setup) -> None:
    """Gives the set-up the optimizer whose update is faster here."""
    if setup.has_optimizer and isinstance(setup.optimizer, NativeStep):
        return
    choice = _update_choice(setup) if _is_on_cpu(setup) else TORCH
    record_choice(setup, "update", choice)
    if choice == NATIVE:
        setup.use_optimizer(_optimizer(setup, list(setup.model.parameters()), is_native=True))


def tune_model(setup: Setup, *, in_lanes: bool = False) -> Callable[[Any], Any]:
    """The model, or a way to call it in which its layers are computed faster; `in_lanes`: one of many."""
    if not _is_on_cpu(setup) or setup.settings.precision != "fp32" or opaque_names(setup.model):
        return setup.model
    try:
        ways = {
            name: (call.shape, by_size)
            for name, call in _calls(setup).items()
            if (by_size := _ways_by_size(setup, name, call, in_lanes=in_lanes))
        }
    except RecordError as error:
        _add_note(setup, note("tuned_not_kept", error=str(error)))
        ways = {}
    layers = {
        name: {str(size): one.names() for size, one in by_size.items()}
        for name, (_, by_size) in ways.items()
    }
    record_choice(setup, "layers", layers)
    return TunedModel(setup.model, ways) if ways else setup.model


def _update_choice(setup: Setup) -> str:
    """What was decided for such parameters on this machine, or is now."""
    if setup.settings.optimizer_code != "auto" or not can_be_fused(setup.model):
        return TORCH  # one of torch's own was asked for, or alone takes such parameters
    if setup.scaler is not None:
        return TORCH  # which knows what a scaler asks of an update
    parameters = [one for one in setup.model.parameters() if one.requires_grad]
    is_long = setup.num_steps * sum(one.numel() for one in parameters) >= WORTH_COMPILING
    sizes = sorted((one.numel(), str(one.dtype)) for one in parameters)

    def decide() -> dict[str, str]:
        try:
            library(may_compile=is_long)
        except NoLibraryError as why:
            if why.code != "tuned_too_short":
                raise
            return {"update": TORCH, "why": why.code}
        return {"update": _faster_update(setup, parameters)}

    try:
        facts = (setup.settings.optimizer, sizes, is_long, library_key())
        choice = kept_choice("update", facts, decide)
        if choice.get("why") and setup.settings.engine == "tuned":  # else nobody asked for it
            _add_note(setup, note("tuned_too_short"))
        if choice.get("update") == NATIVE:
            library()
        return str(choice.get("update", TORCH))
    except NoLibraryError as why:
        _add_note(setup, Note(code=why.code, values={"error": why.reason}))
    except RecordError as error:
        _add_note(setup, note("tuned_not_kept", error=str(error)))
    return TORCH


def _faster_update(setup: Setup, parameters: list[nn.Parameter]) -> str:
    """Measured on copies, with gradients drawn apart from the trial's."""
    draw = torch.Generator().manual_seed(0)

    def stepper(is_native: bool) -> Callable[[], object]:
        copies = [nn.Parameter(one.detach().clone()) for one in parameters]
        for one in copies:
            one.grad = torch.randn(one.shape, generator=draw, dtype=one.dtype) * 1e-3
        return _optimizer(setup, copies, is_native).step

    return faster({TORCH: stepper(is_native=False), NATIVE: stepper(is_native=True)})[0]


def _optimizer(setup: Setup, parameters: list[nn.Parameter], is_native: bool) -> Optimizer:
    given = setup.settings, parameters, setup.device
    if not is_native:
        return make_optimizer(*given)
    return make_optimizer(*given, class_for=partial(native_class, library=library()))


def _calls(setup: Setup) -> dict[str, Call]:
    """How the layers of the model are called; none, with a note, where a copy of it does not run."""
    batches = setup.forward_batches
    rows = torch.arange(min(batches.batch_size, batches.num_samples, MOST_SAMPLES))
    try:
        with seeded(setup.trial.seed, "tuned"):
            return sample_calls(setup.model, setup.workload.prepare(batches.gather(rows)[0]))
    except Exception as error:  # noqa: BLE001  the user's code, which may raise anything
        kind, reason = type(error).__name__, said_by(error)
        _add_note(setup, note("tuned_model_failed", kind=kind, reason=reason))
        return {}


def _ways_by_size(setup: Setup, name: str, call: Call, *, in_lanes: bool) -> WaysBySize:
    """For the batches of training and of the test; nothing where torch's own are faster for all, and not
    even the order in memory of what they give differs."""
    layer = setup.model.get_submodule(name)
    kind = kind_of(layer)
    assert kind is not None, "the copy had a layer of another kind"
    facts = (call, str(layer))
    sizes = {
        min(batches.batch_size, batches.num_samples, MOST_SAMPLES)
        for batches in (setup.forward_batches, setup.test_batches)
    }
    found = {}
    for size in sorted(sizes):
        shape = (size, *call.shape)
        decide = partial(kind.fastest_ways, layer, shape, call.needs_grad_input)
        names = kept_choice(kind.name, (size, facts), decide)
        found[size] = Ways.from_names(names, kind.parts)
    is_other = set(found.values()) != {ALL_TORCH} or (in_lanes and kind.runs_in_vmap)
    return found if is_other else {}


def _is_on_cpu(setup: Setup) -> bool:
    if setup.device.type == "cpu":
        return True
    _add_note(setup, note("tuned_cpu_only", device=str(setup.device)))
    return False


def record_choice(setup: Setup, part: str, choice: object) -> None:
    """What was decided for a part of the trial; ends up in `resolved.tuned`."""
    setup.engine_facts["tuned"] = {**setup.engine_facts.get("tuned", {}), part: choice}


def _add_note(setup: Setup, one: Note) -> None:
    if one not in setup.notes:
        setup.notes.append(one)
