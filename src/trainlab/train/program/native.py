"""An update of many trials on the CPU by the compiled code of `tuned`: one pass over the numbers."""

import ctypes
from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import Tensor

from trainlab.errors import RecordError
from trainlab.spec.settings import OPTIMIZERS, OptimizerName
from trainlab.train.program.fused import STATE
from trainlab.train.tuned.choices import NATIVE, TORCH, kept_choice
from trainlab.train.tuned.layout import NUMBERS_PER_TENSOR
from trainlab.train.tuned.library import WORTH_COMPILING, NoLibraryError, library, library_key
from trainlab.train.tuned.rules import DTYPES, RULES, Options

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "adadelta": {"first": "rho", "eps": "eps"},
    "sgd": {"first": "momentum", "extra": "dampening"},
    "adam": {"first": "beta1", "second": "beta2", "eps": "eps"},
    "adamw": {"first": "beta1", "second": "beta2", "eps": "eps"},
    "rmsprop": {"first": "alpha", "second": "momentum", "eps": "eps"},
    "adagrad": {"first": "lr_decay", "eps": "eps"},
}
"""The settings of each by the name that update.cpp has for them."""
FLAGS = {"sgd": "nesterov", "adam": "amsgrad", "adamw": "amsgrad", "rmsprop": "centered"}


def is_compiled(optimizer: OptimizerName, num_updates: int, parameters: Tensor) -> bool:
    """Whether trials of so many updates are updated by compiled code here: decided by the first of their
    kind, and never by how many are trained together."""
    if parameters.device.type != "cpu" or parameters.dtype not in DTYPES:
        return False
    is_long = num_updates * parameters.shape[1] >= WORTH_COMPILING

    def decide() -> dict[str, Any]:
        try:
            library(may_compile=is_long)
        except NoLibraryError:
            return {"update": TORCH}
        return {"update": NATIVE}

    facts = (optimizer, parameters.shape[1], str(parameters.dtype), is_long, library_key())
    try:
        if kept_choice("lanes", facts, decide).get("update") != NATIVE:
            return False
        library()
    except (NoLibraryError, RecordError):
        return False
    return True


class NativeUpdate:
    """The trials of one optimizer, their settings laid out as the compiled code reads them."""

    def __init__(
        self,
        optimizer: OptimizerName,
        exact: dict[str, Tensor],
        state: dict[str, Tensor],
        flags: Set[str],
    ) -> None:
        """`exact` are the optimizer's settings as columns of float64; `flags` what the update has."""
        torch_class = getattr(torch.optim, OPTIMIZERS[optimizer].torch_class)
        self._library, self._kind = library(), RULES[torch_class].kind
        self._states = [state.get(name) for name in STATE[optimizer]]
        self._states += [None] * (3 - len(self._states))
        columns = {
            name: exact[option].flatten().tolist() for name, option in OPTIONS[optimizer].items()
        }
        columns["weight_decay"] = exact["weight_decay"].flatten().tolist()
        self._count = len(columns["weight_decay"])
        self._options = (Options * self._count)()
        for row, options in enumerate(self._options):
            for name, values in columns.items():
                setattr(options, name, values[row])
            options.flag = FLAGS.get(optimizer) in flags
        self._dampening = columns.get("extra")
        self._steps = torch.zeros(self._count, dtype=torch.float32)
        self._tensors = (ctypes.c_int64 * (self._count * NUMBERS_PER_TENSOR))()
        self._laid_out: tuple[int, int] | None = None

    def step(self, parameters: Tensor, gradients: Tensor, rates: Tensor, steps: Tensor) -> None:
        """One update of every row, `steps` with it; all tensors must lie whole in memory."""
        if self._laid_out != (parameters.data_ptr(), gradients.data_ptr()):
            self._lay_out(parameters, gradients)
        counts = steps.flatten()
        self._steps.copy_(counts - 1)  # which the compiled code counts on
        is_first = self._dampening is not None and counts[0].item() == 1
        for row, rate in enumerate(rates.flatten().tolist()):
            options = self._options[row]
            options.lr = rate
            if self._dampening is not None:
                # The first step takes the gradient whole.
                options.extra = 0.0 if is_first else self._dampening[row]
        unknown = self._library.trainlab_update_each(
            self._kind,
            parameters.dtype == torch.float64,
            ctypes.byref(self._tensors),
            ctypes.c_int64(self._count),
            ctypes.byref(self._options),
            ctypes.c_int64(torch.get_num_threads()),
        )
        assert not unknown, f"update.cpp has no kind {self._kind}"

    def _lay_out(self, parameters: Tensor, gradients: Tensor) -> None:
        """Where the rows lie: `Tensor` in update.cpp."""
        laid_out = (parameters, gradients, *self._states, self._steps)
        assert all(one is None or one.is_contiguous() for one in laid_out)
        first = [0 if one is None else one.data_ptr() for one in laid_out]
        bytes_per_row = [0 if one is None else one[:1].nbytes for one in laid_out]
        numbers: list[ctypes.c_int64 | int] = []
        for row in range(self._count):
            numbers += [at + row * size for at, size in zip(first, bytes_per_row, strict=True)]
            numbers.append(parameters.shape[1])
        self._tensors[:] = numbers
        self._laid_out = parameters.data_ptr(), gradients.data_ptr()
