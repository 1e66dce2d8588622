"""Where the memory of a step goes, by exact accounting, in a process whose speed is never reported.

A step is profiled after another one: torch's profiler reports that a block is freed only if it saw it
allocated, and a step begins by freeing the gradients of the step before. Memory that libraries take
for themselves (oneDNN, numpy) is seen neither by the profiler nor by the allocator.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._profiler import _EventType
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile, record_function

from trainlab.data.nesting import tensors_in
from trainlab.errors import DeviceError
from trainlab.measure.operator_profile import END_OF, STEP, PhaseEnds
from trainlab.measure.steps import stepping
from trainlab.record.cost_record import MemoryRecord
from trainlab.spec.study import CostSpec
from trainlab.train.callbacks import Instrument
from trainlab.train.engines.engine import Update
from trainlab.train.setup import Setup

Blocks = dict[int, int]
"""Address of a storage to its bytes: views and shared tensors are counted once."""
WARMUP_STEPS = 3
"""Then gradients and optimizer state exist and workspaces are taken."""


class SizeChange(NamedTuple):
    """A block allocated, or freed where its bytes are negative."""

    at_ns: int
    address: int
    num_bytes: int


Sighting = tuple[str, int, Blocks]
"""A kind of memory, the changes of a step made before one moment, and the kind's blocks then. Of a kind
seen twice, the second is its fullest: gradients before and after a step."""


class Peak(NamedTuple):
    """The moment of a step at which tensors held most."""

    num_bytes: int
    phase: str
    alive: Mapping[str, int]
    """Bytes of each kind that were alive then: not all are at once."""


def find_peak(
    before: Blocks,
    changes: Sequence[SizeChange],
    phase_ends: Sequence[tuple[int, str]],
    sightings: Sequence[Sighting],
) -> Peak:
    """Where the bytes alive are most, and how many of them each kind has there: given what was alive before
    the step, and what it allocated and freed and the ends of its phases in the order of time."""
    totals, live = [sum(before.values())], dict(before)
    for change in changes:
        gone, new = live.pop(change.address, 0), max(change.num_bytes, 0)
        totals.append(totals[-1] - gone + new)
        if new:
            live[change.address] = new
    index = totals.index(max(totals))
    at_peak, alive = alive_after(before, changes[:index]), dict[str, Blocks]()
    for kind, num_changes, blocks in sightings:
        then = alive_after(before, changes[:num_changes])
        # An address may come to hold one block after another.
        still = {a: n for a, n in blocks.items() if a in at_peak and at_peak[a] == then.get(a)}
        alive[kind] = alive.get(kind, {}) | still
    at_ns = changes[index - 1].at_ns if index else 0
    return Peak(
        num_bytes=totals[index],
        phase=next((name for end_ns, name in phase_ends if end_ns >= at_ns), "other"),
        alive={kind: sum(blocks.values()) for kind, blocks in alive.items()},
    )


def alive_after(before: Blocks, changes: Iterable[SizeChange]) -> dict[int, tuple[int, int]]:
    """Each address that holds a block then, with its bytes and the time since when; 0: from before. A block
    whose allocation nobody saw was never counted, so its end is not either."""
    alive = {address: (size, 0) for address, size in before.items()}
    for change in changes:
        alive.pop(change.address, None)
        if change.num_bytes > 0:
            alive[change.address] = change.num_bytes, change.at_ns
    return alive


def measure_memory(setup: Setup, spec: CostSpec) -> MemoryRecord:
    """The peak of a steady step, and each kind of memory at its fullest. The kinds need not add up to the
    peak: gradients are freed before the forward pass, activations during the backward pass. `other_bytes`
    is the peak less what of each kind was alive at it; a batch that is a view of the data takes none."""
    if setup.device.type not in ("cpu", "cuda"):
        raise DeviceError(
            f"device: memory is measured on cpu and cuda, not yet on {setup.device.type}"
        )
    watcher, allocator_bytes = BatchBlocks(setup.device), None
    with stepping(setup, spec.mode) as steps:
        for _ in range(WARMUP_STEPS):
            steps.next_bare()
        # The splits that lie on the device, as views of which their batches are made.
        splits = (setup.train_batches, setup.test_batches, steps.batches)
        resident = [next(split.in_order()) for split in splits if split.resident]
        data = _blocks(tensors_in(resident), setup.device)
        if setup.device.type == "cuda":
            batch = next(steps.endless)
            torch.cuda.reset_peak_memory_stats(setup.device)
            steps.bare(batch)
            allocator_bytes = torch.cuda.max_memory_allocated(setup.device)
        watched = steps.watched_by([PhaseEnds(), watcher])
        batches = next(steps.endless), next(steps.endless)
        peak, sightings = _profiled_step(setup, watched, batches, watcher, data)
    peak_bytes = peak.num_bytes if allocator_bytes is None else allocator_bytes - sum(data.values())
    full = {f"{kind.removesuffix('s')}_bytes": sum(b.values()) for kind, _, b in sightings}
    return MemoryRecord(
        mode=spec.one_mode,
        batch_size=steps.batch_size,
        source="profiler" if allocator_bytes is None else "allocator",
        peak_bytes=peak_bytes,
        **full,
        other_bytes=peak_bytes - sum(peak.alive.values()),
        peak_phase=peak.phase,
        at_peak=dict(peak.alive),
        data_bytes=sum(data.values()),
    )


class BatchBlocks(Instrument):
    """Which blocks the batch lies in; keeps none of them alive."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.blocks: Blocks = {}

    def batch_ready(self, inputs: Any, targets: Any) -> None:
        self.blocks = _blocks(tensors_in((inputs, targets)), self._device)


def _profiled_step(
    setup: Setup, step: Update, batches: tuple[Any, Any], watcher: BatchBlocks, data: Blocks
) -> tuple[Peak, list[Sighting]]:
    """The peak of one step, after one that only shows the profiler what the next will free."""
    spare, batch = batches
    all_saved: Blocks = {}

    def pack(tensor: Tensor) -> Tensor:
        all_saved.update(_blocks([tensor], setup.device))
        return tensor

    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        step(spare)
        standing = _standing(setup)
        with record_function(STEP), saved_tensors_hooks(pack, lambda tensor: tensor):
            step(batch)
    nodes = _nodes(profiler)
    start_ns = next(node.start_time_ns for node in nodes if node.name == STEP)
    all_changes = sorted(
        SizeChange(node.start_time_ns, node.extra_fields.ptr, node.extra_fields.alloc_size)
        for node in nodes
        if node.tag == _EventType.Allocation and node.extra_fields.device.type == setup.device.type
    )
    earlier = [change for change in all_changes if change.at_ns < start_ns]
    changes = all_changes[len(earlier) :]
    seen_before = {address: size for address, (size, _) in alive_after({}, earlier).items()}
    before = seen_before | dict(ChainMap(*standing.values()))
    phase_ends = sorted(
        (node.start_time_ns, node.name.removeprefix(END_OF))
        for node in nodes
        if node.name.startswith(END_OF) and node.start_time_ns > start_ns
    )
    # After the loss all that the backward pass needs is alive, and nothing of it is gone yet.
    loss_ns = next(at_ns for at_ns, name in phase_ends if name == "loss")
    until_loss = sum(change.at_ns < loss_ns for change in changes)
    kept = alive_after(before, changes[:until_loss])
    # Not the gradients: before a step's loss there are none, but others may lie at their addresses.
    lasting = ChainMap(data, *(standing[kind] for kind in ("parameters", "buffers", "optimizer")))
    own_batch = {a: n for a, n in watcher.blocks.items() if a not in lasting}
    # A constant that the model holds anyway may be saved too: it is not kept for the backward pass.
    made_in_step = kept.keys() - lasting.keys() - own_batch.keys()
    saved = {a: n for a, n in all_saved.items() if a in made_in_step}
    sightings = [
        *((kind, 0, blocks) for kind, blocks in standing.items()),
        ("input", until_loss, own_batch),
        ("activations", until_loss, saved),
        *((kind, len(changes), blocks) for kind, blocks in _standing(setup).items()),
    ]
    return find_peak(before, changes, phase_ends, sightings), sightings


def _standing(setup: Setup) -> dict[str, Blocks]:
    """What lives on from step to step."""
    parameters: list[Tensor] = list(setup.model.parameters())
    optimizers = setup.optimizers.by_name.values()
    states = (of_one for one in optimizers for of_one in one.state.values())
    state = [value for of_one in states for value in tensors_in(of_one)]
    tensors = {
        "parameters": parameters,
        "buffers": list(setup.model.buffers()),
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": state,
    }
    return {kind: _blocks(group, setup.device) for kind, group in tensors.items()}


def _blocks(tensors: Iterable[Tensor], device: torch.device) -> Blocks:
    blocks: Blocks = {}
    for tensor in tensors:
        parts = (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)
        for storage in (part.untyped_storage() for part in parts):
            if storage.nbytes() and storage.device.type == device.type:
                blocks[storage.data_ptr()] = storage.nbytes()
    return blocks


def _nodes(profiler: profile) -> list[Any]:
    """The profiler's events as it keeps them: only here do memory events have an address."""
    results: Any = profiler.profiler
    nodes = list(results.kineto_results.experimental_event_tree())
    for node in nodes:  # which grows meanwhile
        nodes += node.children
    return nodes
