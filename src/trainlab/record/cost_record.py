"""The records of cost in a run folder: times, phases, operators, layers, memory, limits. Raw values."""

import statistics
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainlab.record.schema import FileRecord, Note, Record

Mode = Literal["train", "inference"]

QUIET_OTHERS_CORES = 0.3
QUIET_STOLEN_CORES = 0.1
"""Cores used by others, and stolen by the host, during a turn that is called quiet. Systems count in ticks
of 10 ms, so that less cannot be told from nothing in a turn of a tenth of a second."""
MIN_QUIET_TURNS = 5


class LoadRecord(Record):
    """What else the machine did during a measurement."""

    others_cores: float
    """Cores kept busy by other processes, on average."""
    stolen_cores: float
    """Cores the host of a virtual machine took away, on average."""


class ColdStep(Record):
    """One step of a process, synchronised with the device after every phase, and its start-up work."""

    phases_ms: dict[str, float]
    page_faults: int | None
    """Pages of memory touched for the first time; None where the system does not report them."""
    modules_imported: int
    """Python modules loaded during the step."""
    libraries_loaded: int | None
    """Shared libraries mapped during the step; None where the system does not report them."""
    device_allocations: int | None
    """Blocks of memory asked from the GPU's driver; None on the CPU."""
    in_phases: dict[str, dict[str, int]] = {}
    """The same four by phase, those that the system reports; empty in older runs."""


class StepRecord(FileRecord):
    """What the measurements of a step share: which step was measured."""

    mode: Mode
    batch_size: PositiveInt


class TurnRecord(Record):
    """One turn of a process: its part of a round, in which the processes of a bench run one by one."""

    round: int
    """Which round of the bench, from 1."""
    lead_ms: list[float]
    """Its first steps, which find the caches cold: set aside."""
    num_bare: PositiveInt
    """So many of the record's `step_ms` are of this turn."""
    num_marked: NonNegativeInt
    """So many of the marked steps are."""
    others_cores: float
    """Cores kept busy by other processes during the turn."""
    stolen_cores: float
    """Cores the host of a virtual machine took away during the turn."""


class EnergyRecord(Record):
    """What the whole GPU took for steps in a row, by the counter of its driver."""

    num_steps: PositiveInt
    joules: PositiveFloat
    wall_s: PositiveFloat


class CostRecord(StepRecord):
    """cost.json: one fresh process's measurement of a step, raw."""

    num_samples: PositiveInt
    """Samples of an epoch (train) or of a pass over the test set (inference)."""
    steps_per_epoch: int
    warmup_ms: list[float]
    """The first steps of the process, synchronised with the device after each; never averaged in."""
    cold: list[ColdStep]
    """The first few of them in detail."""
    settled: list[ColdStep]
    """The same for a few steps after the measurement, to compare with."""
    bench: str = ""
    """The same for all processes that took turns with each other; empty in runs from before turns."""
    turns: list[TurnRecord] = []
    """In order; steps without phase marks (bare) and with them (marked) alternate."""
    round_steps: int = 0
    """Bare steps, and marked ones, of a round in runs from before turns."""
    step_ms: Annotated[list[PositiveFloat], Field(min_length=1)]
    """Bare steps: the only source of a reported time."""
    queued_ms: float | None = None
    """How long the host took to hand all of them to a GPU; None on a CPU, of scripts, and in older runs."""
    last_ms: list[float] = []
    """Steps on the smaller last batch of an epoch; empty where there is none."""
    phases_ms: dict[str, Annotated[list[NonNegativeFloat], Field(min_length=1)]]
    """Per marked step, milliseconds of each phase; `other` is what lies between them."""
    stopped: Literal["tight", "budget"]
    energy: EnergyRecord | None = None
    """Of steps that ran alone after the turns; None where nothing counts it."""
    memory: list[tuple[int, int]] = []
    """Of a script: update and resident bytes of its process, at the ends of turns until it first ended."""
    load: LoadRecord

    @property
    def sample_mj(self) -> float | None:
        """Energy per sample; None where nothing counted it."""
        one = self.energy
        return None if one is None else 1e3 * one.joules / one.num_steps / self.batch_size

    def bare_turns_ms(self) -> list[list[float]]:
        """The bare steps of each turn; all as one where there were no turns."""
        if not self.turns:
            return [self.step_ms]
        ends = list(accumulate(turn.num_bare for turn in self.turns))
        return [self.step_ms[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def quiet_turns(self) -> list[int]:
        """The places of the turns during which little else ran; of all turns where fewer than half were
        so quiet, or fewer than MIN_QUIET_TURNS."""
        quiet = [
            place
            for place, turn in enumerate(self.turns)
            if turn.others_cores <= QUIET_OTHERS_CORES and turn.stolen_cores <= QUIET_STOLEN_CORES
        ]
        is_enough = len(quiet) >= max(MIN_QUIET_TURNS, len(self.turns) / 2)
        return quiet if is_enough else list(range(max(1, len(self.turns))))

    def quiet_medians_ms(self) -> dict[int, float]:
        """The median bare step of each quiet turn, by round; of all steps, as round 0, without turns."""
        bare_ms, turns = self.bare_turns_ms(), self.turns
        return {
            turns[place].round if turns else 0: statistics.median(bare_ms[place])
            for place in self.quiet_turns()
        }


class OperatorRow(Record):
    """Sums over all profiled steps for one operator in one phase, or for one GPU kernel."""

    name: str
    kind: Literal["operator", "kernel", "runtime"]
    """`runtime`: the driver loading code or emptying buffers, at times of its own."""
    phase: str
    """Empty for kernels."""
    shapes: str = ""
    """Its inputs' shapes, where asked for."""
    calls: int
    outermost_calls: int = 0
    """Calls that no other operator made: in the forward pass, those the model's code made itself."""
    self_cpu_us: float
    total_cpu_us: float
    """With the operators it called: wrappers count the same time again at each level."""
    self_device_us: float
    total_device_us: float
    self_cpu_bytes: int
    """Allocated less freed, by the operator itself."""
    self_device_bytes: int


class OperatorsRecord(StepRecord):
    """operators.json: torch's profiler over some steps, in a process whose speed is never reported."""

    num_steps: PositiveInt
    num_pass_steps: int = 0
    """Of inference: the steps of a whole pass over the test set, where they are more than were profiled."""
    profiled_step_us: PositiveFloat
    """Wall time of a profiled step: what the shares are shares of, not a speed."""
    are_medians: bool = False
    """Whether a row's times are the median step's, as often as there are steps, and the step's time is made
    of them and of the median of what lies outside all operators; in older runs sums, and the mean."""
    bare_ms: list[float] = []
    """Steps of the same process before the profiler first started: what profiling is measured against."""
    profiled_ms: list[float] = []
    """Each profiled step."""
    calls_are_equal: bool
    """Whether every step called every operator equally often."""
    trace_steps: int = 0
    """Steps in trace.json.gz; 0 where none fitted the budget."""
    rows: list[OperatorRow]

    @property
    def whole(self) -> float:
        """What the sums are multiplied by for a whole pass, or for all profiled training steps."""
        return max(1.0, self.num_pass_steps / self.num_steps)


class WorkRecord(Record):
    """Work of a step that belongs to no call of a layer."""

    flops_by_kind: dict[str, int] = {}
    """Two per multiply-add, by `convolution`, `recurrent` and `matmul`."""
    num_bytes: int
    """Read and written."""


class CallRow(Record):
    """One call of a module or function within a step, as the user wrote it."""

    name: str
    """Its path in the model: `conv1`, `blocks.0.relu`; a function by its own name."""
    call: int
    """Which call of that name in the step, from 1: a shared module has several."""
    kind: Literal["module", "function"]
    type: str
    """The module's class or the function's name: Conv2d, relu."""
    phase: Literal["forward", "loss"]
    inputs: list[int]
    """Rows whose output it took; -1 stands for the batch itself. Together: the data-flow graph."""
    output_shapes: list[list[int]]
    num_parameters: int
    """Of the module itself; 0 at later calls of a shared one, so that a sum is right."""


class LayerRow(CallRow):
    """A call with its work and its time."""

    forward_flops: int
    """Two per multiply-add; biases and element-wise work are not counted."""
    backward_flops: int
    flops_by_kind: dict[str, int] = {}
    """Both passes, by `convolution`, `recurrent` and `matmul`; empty in older records."""
    forward_bytes: int
    """Bytes its operators read and wrote, each tensor once per operator; of a table, the rows reached."""
    backward_bytes: int
    output_bytes: int
    """New memory its outputs hold."""
    saved_bytes: int
    """Memory it keeps for the backward pass, without parameters and the batch."""
    first_forward_us: float | None
    """In the first step of the process, which pays for start-up; None if it did not run then."""
    forward_us: list[float]
    """In each watched step in which it ran: for shares, not a speed."""
    backward_us: list[float]


class NetworkRecord(FileRecord):
    """network.json: the calls of one forward pass of the model that a trial trained, without times."""

    batch_size: PositiveInt
    rows: list[CallRow]
    """In the order of the calls."""


class LayersRecord(StepRecord):
    """layers.json: the calls of a step with their shapes, work and time, in a watched process."""

    num_steps: int
    calls_are_equal: bool
    """Whether every watched step made the same calls."""
    rows: list[LayerRow]
    """In the order of the calls."""
    uncounted: list[str]
    """Operators that may do arithmetic for which no FLOP count is known."""
    between: WorkRecord | None = None
    """Forward to backward, between the calls: autograd adding gradients up, say. None: not counted."""
    optimizer: WorkRecord | None = None
    """The optimizer's work; None: not counted."""
    phases_us: dict[str, list[float]]
    """Total forward, loss and backward time of each watched step: what the rows are shares of."""
    bare_ms: list[float]
    """Unwatched steps, alternating with the watched ones: what watching is measured against."""
    watched_ms: list[float]


class ProbeCostRecord(FileRecord):
    """probe_price.json: what a study's probes add to a training step, in a watched process."""

    probes: list[str]
    bare_ms: list[float]
    """Steps without probes, alternating with the probed ones."""
    watched_ms: list[float]


class MemoryRecord(StepRecord):
    """memory.json: where the memory of a step goes, in a watched process."""

    source: Literal["allocator", "profiler"]
    """What measured the peak: the GPU's allocator, or torch's profiler on the CPU."""
    peak_bytes: PositiveInt
    """The most that tensors held at once during a step, without the data set."""
    parameter_bytes: int
    """This and the next five: the most that each kind held at any time of the step."""
    buffer_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    input_bytes: int
    """The batch as the model and the loss get it."""
    activation_bytes: int
    """Kept between forward and backward: what the layers saved."""
    other_bytes: int
    """The peak less the part of each of these alive then: intermediate results, workspaces."""
    peak_phase: str
    """The phase of the step in which the peak lies."""
    at_peak: dict[str, int]
    """Bytes of each kind alive at the peak; with `other_bytes` they add up to it."""
    data_bytes: int
    """The data set, where it lies on the device; not part of any figure above."""


class LimitsRecord(FileRecord):
    """limits.json: what this machine can do at best, measured."""

    device_name: str
    threads: int
    torch: str
    measured: str
    flops_per_s: dict[str, PositiveFloat]
    """Best matrix product, by precision: fp32, tf32, bf16."""
    bytes_per_s: PositiveFloat
    """Best large copy, bytes read plus bytes written."""
    busy: bool = False
    """Whether other programs ran meanwhile: the figures may then be too low."""
    notes: list[Note] = []
