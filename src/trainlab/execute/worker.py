"""The worker: runs planned trials and leaves a record of each, whatever happens.

Everything it needs comes from the run folder and everything it makes goes there, so that the same
entry serves this process, another process, or another machine.
"""

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType

import torch

from trainlab.data.dataset import Dataset
from trainlab.errors import TrainlabError
from trainlab.instruments.curves import Curves
from trainlab.instruments.probes.instrument import Probes
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.instruments.weights import Weights, load_weights
from trainlab.measure.layers import profile_layers
from trainlab.measure.limits import measured_limits
from trainlab.measure.memory import measure_memory
from trainlab.measure.operators import profile_operators
from trainlab.measure.probe_cost import price_probes
from trainlab.measure.timing import measure
from trainlab.plan import Trial, Watch
from trainlab.record.folder import RunFolder, TrialFolder
from trainlab.record.schema import DataRecord, Failure, State, TrialRecord
from trainlab.spec import CostSpec, Study, checked
from trainlab.spec.probe import ProbeSpec
from trainlab.train.loop import train
from trainlab.train.moments import Instrument, Moments, Progress
from trainlab.train.setup import Bench, load_data, prepare_process, set_up
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload


def run_group(
    folder: RunFolder,
    trial_ids: Sequence[str],
    watchers: Sequence[Instrument] = (),
    load: "Loader | None" = None,
) -> None:
    """Runs the trials one after another. A trial that fails is recorded and the next one runs;
    a user's mistake (TrainlabError) or an interrupt is recorded and raised."""
    study = checked(Study, folder.study().study, str(folder.study_file))
    threads = torch.get_num_threads()
    load = load or Loader()
    try:
        for trial_id in trial_ids:
            torch.set_num_threads(threads)
            home = folder.trial(trial_id)
            asked = home.read().model_dump(include=set(Trial.model_fields))
            trial = checked(Trial, asked, str(home.trial_file))
            source = folder.trial(trial.weights_of) if trial.weights_of else None
            _run_one(trial, home, [*_instruments(study), *watchers], load, source, study.probes)
    finally:
        torch.set_num_threads(threads)


class Loader:
    """Loads each workload and its data once, so that all trials of a group really share them."""

    def __init__(self, given: Mapping[str, Workload] | None = None) -> None:
        self._workloads = dict(given or {})
        self._datasets: dict[tuple[str, str], Dataset] = {}

    def workload(self, reference: str) -> Workload:
        """A workload given as an object, or found by its reference."""
        if reference not in self._workloads:
            self._workloads[reference] = find_workload(reference)
        return self._workloads[reference]

    def __call__(self, reference: str, choice: str) -> tuple[Workload, Dataset]:
        workload = self.workload(reference)
        if (reference, choice) not in self._datasets:
            self._datasets[reference, choice] = load_data(workload, choice)
        return workload, self._datasets[reference, choice]


def _instruments(study: Study) -> list[Instrument]:
    chosen: list[Instrument] = [Curves()]
    board = TensorBoard()
    if study.probes:
        # Before TensorBoard, which closes its file at the end: the last values must still go there.
        chosen.append(Probes(study.probes, [board.probe_logged] if study.tensorboard else []))
    if study.tensorboard:
        chosen.append(board)
    if study.keeps_weights:
        chosen.append(Weights())
    return chosen


def _run_one(
    trial: Trial,
    folder: TrialFolder,
    instruments: Sequence[Instrument],
    load: Loader,
    source: TrialFolder | None,
    probes: Sequence[ProbeSpec],
) -> None:
    progress, moments = Progress(), Moments(instruments)
    notes: list[str] = []
    record = folder.read().model_copy(update={"state": "running", "started": _now()})
    folder.write(record)
    ending = _Ending()
    with ending:
        prepare_process(trial.settings)
        workload, dataset = load(trial.workload, trial.settings.data)
        bench = set_up(trial, workload, folder, dataset)
        notes = bench.notes
        record = record.model_copy(update=_facts(bench))
        folder.write(record)
        if source is not None:
            load_weights(bench, source)
        if trial.cost is not None:
            _measure(bench, trial.cost, trial.watch, probes)
            progress.state = "done"
        else:
            with ending.closing(lambda: moments.trial_ends(progress)):
                train(bench, moments, progress)
    with ending:
        folder.write(_ended(record, progress, notes, ending))
    ending.tell()


def _measure(
    bench: Bench, cost: CostSpec, watch: Watch | None, probes: Sequence[ProbeSpec]
) -> None:
    folder = bench.folder
    if watch == "operators":
        folder.operators.write(profile_operators(bench, cost))
    elif watch == "layers":
        folder.layers.write(profile_layers(bench, cost))
        folder.memory.write(measure_memory(bench, cost))
        folder.limits.write(measured_limits(bench.device))
        if probes and cost.mode == "train":
            folder.probe_price.write(price_probes(bench, cost, probes))
    else:
        folder.cost.write(measure(bench, cost))


class _Ending:
    """How a trial ended: keeps the first thing that was raised, so that its record is always written.

    A trial runs the user's code, which may raise anything, and an interrupt may come at any moment.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self.failure: Failure | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if fault is not None and self.raised is None:
            if not isinstance(fault, KeyboardInterrupt):
                self.failure = Failure(
                    kind=type(fault).__name__,
                    message=str(fault),
                    traceback="".join(traceback.format_exception(fault)),
                )
            # Without its traceback: the frames would keep the model alive beside the next one.
            self.raised = fault.with_traceback(None)
        return fault is not None

    @contextmanager
    def closing(self, close: Callable[[], None]) -> Iterator[None]:
        """Runs `close` after the block, whatever the block raised."""
        with self:
            yield
        close()

    def state(self, reached: State) -> State:
        """The trial's final state, given how far it came by itself."""
        if self.raised is None:
            return reached
        return "interrupted" if isinstance(self.raised, KeyboardInterrupt) else "failed"

    def tell(self) -> None:
        """Raises what is not the trial's own failure: an interrupt, or the user's mistake."""
        if isinstance(self.raised, KeyboardInterrupt | TrainlabError):
            raise self.raised


def _facts(bench: Bench) -> dict[str, object]:
    dataset = bench.dataset
    return {
        "resolved": bench.resolved(),
        "data": DataRecord(
            name=dataset.name,
            source=dataset.source,
            is_subset=dataset.is_subset,
            num_train=len(dataset.train),
            num_test=len(dataset.test),
            note=dataset.note,
        ),
    }


def _ended(
    record: TrialRecord, progress: Progress, notes: Sequence[str], ending: _Ending
) -> TrialRecord:
    return record.model_copy(
        update={
            "state": ending.state(progress.state),
            "ended": _now(),
            "total_s": progress.total_s,
            "epochs_done": progress.epochs_done,
            "steps_done": progress.steps_done,
            "final": {n: v if math.isfinite(v) else None for n, v in progress.final.items()},
            "diverged_at_step": progress.diverged_at_step,
            "error": ending.failure,
            "notes": tuple(notes),
        }
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
