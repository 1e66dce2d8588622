"""Runs a step without arguments many times: by a CUDA graph on a GPU, by calling it elsewhere."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainlab.train.program.unsuited import Unsuited, reason_of

WARMUP_STEPS = 3
"""Before a graph is captured: libraries choose their algorithms and take their memory."""


class Repeated:
    """A step that can be run many times; on a GPU it is captured with its first run."""

    def __init__(
        self,
        step: Callable[[], None],
        device: torch.device,
        changes: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        """`changes` is all that a step changes, `generators` are those it draws from."""
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = _captured(step, device, changes, generators)

    def run(self, times: int) -> None:
        """So many steps; on a GPU they are queued, not done."""
        repeat = self._step if self._graph is None else self._graph.replay
        for _ in range(times):
            repeat()


def _captured(
    step: Callable[[], None],
    device: torch.device,
    changes: Sequence[Tensor],
    generators: Sequence[torch.Generator],
) -> torch.cuda.CUDAGraph:
    with torch.no_grad():
        kept = [tensor.clone() for tensor in changes]
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARMUP_STEPS):
                step()
                restore(changes, kept)  # an epoch may have fewer steps
        torch.cuda.current_stream(device).wait_stream(aside)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        _renew_generator(device)
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise Unsuited("not_capturable", reason=reason_of(error)) from error
    finally:
        restore(changes, kept)
    return graph


def _renew_generator(device: torch.device) -> None:
    """A capture that failed leaves the default generator believing that it is still being captured."""
    default = torch.cuda.default_generators[device.index or torch.cuda.current_device()]
    default.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())


def restore(tensors: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    """Gives them the numbers that were kept."""
    with torch.no_grad():
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.copy_(before)
