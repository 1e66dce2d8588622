"""Loads workloads and their data, each once, so that all trials of a process really share them."""

import json
from collections.abc import Mapping
from dataclasses import replace

from trainlab.data.dataset import Dataset, Loaded
from trainlab.errors import TrainlabError, WorkloadError, said_by
from trainlab.spec import TrainSpec
from trainlab.spec.facts import num_held_out
from trainlab.train.seeds import data_order, seeded
from trainlab.workloads.find import find_workload, received
from trainlab.workloads.user_code import gave, own_line, told_place
from trainlab.workloads.workload import Workload, line_of


class Loader:
    """Workloads by what the user wrote, or given as objects; data by what was chosen."""

    def __init__(
        self,
        given: Mapping[str, Workload] | None = None,
        code: str | None = None,
        sent: Mapping[str, bytes] | None = None,
    ) -> None:
        """`code`: the fingerprint that the workload had when the run began, where that is known; `sent`:
        workloads given as objects, as fresh processes get them."""
        self._workloads = dict(given or {})
        self.sent = dict(sent or {})
        self._code = code
        self.datasets: dict[tuple[object, ...], Dataset] = {}

    def workload(self, reference: str) -> Workload:
        """A workload given as an object, or found by its reference. What its file draws as it is imported,
        data say, is the same in every process."""
        if reference not in self._workloads:
            content = self.sent.get(reference)
            with seeded(0, "workload"):
                found = received(content, reference) if content else find_workload(reference)
            self._workloads[reference] = found
        return self._workloads[reference]

    def known_code(self, reference: str) -> str | None:
        """The fingerprint of a workload's code as it was loaded here; None where it was not."""
        workload = self._workloads.get(reference)
        return None if workload is None else workload.code

    def was_changed(self, reference: str) -> bool:
        """Whether the code of a workload is another than when the run began."""
        return self._code not in (None, self.workload(reference).code)

    def data(self, reference: str, settings: TrainSpec) -> Dataset:
        """The workload's data as the settings ask for it: so many training samples of it, a part of them
        held out. What it draws itself is the same for every trial and seed."""
        num_train, share = settings.train_samples, settings.val_fraction
        options = json.dumps(settings.data_options, sort_keys=True)
        key = (reference, settings.data, options, num_train, share)
        if key in self.datasets:
            return self.datasets[key]
        if share:
            whole = self.data(reference, settings.model_copy(update={"val_fraction": 0.0}))
            found = _with_held_out(whole, share)
        elif num_train is not None:
            whole = self.data(reference, settings.model_copy(update={"train_samples": None}))
            found = _with_fewer(whole, num_train)
        else:
            with seeded(0, "data"):
                found = _data_of(self.workload(reference), settings)
        self.datasets[key] = found
        return found


def _with_fewer(whole: Dataset, num_train: int) -> Dataset:
    """Drawn at random, as stored samples may be sorted; of two numbers the smaller one's are part of the
    larger one's."""
    num_all = _num_divisible(whole)
    if num_train >= num_all:
        return whole
    rows = data_order(0, 0, num_all)[:num_train]
    return replace(whole, train=whole.train.part(rows), is_subset=True)


def _with_held_out(whole: Dataset, share: float) -> Dataset:
    """Drawn at random, the same rows whatever else is asked for; at least one is left on either side."""
    if whole.val is not None:
        raise WorkloadError(
            f"val_fraction: got {share:g}, but {whole.name} has validation data of its own; leave it out"
        )
    num_train = _num_divisible(whole)
    if num_train < 2:
        raise WorkloadError(f"val_fraction: got {share:g}, but there is one training sample only")
    num_val = num_held_out(share, num_train)
    rows = data_order(1, 0, num_train)
    held_out, left = rows[:num_val].sort().values, rows[num_val:].sort().values
    return replace(whole, train=whole.train.part(left), val=whole.train.part(held_out))


def _num_divisible(whole: Dataset) -> int:
    """Training samples; DataError where no part of them can be taken, and so none need be counted."""
    if isinstance(whole.train, Loaded):
        whole.train.check_divisible()
    return len(whole.train)


def _data_of(workload: Workload, settings: TrainSpec) -> Dataset:
    """The user's function, its mistakes told as such."""
    try:
        dataset = workload.dataset(settings.data, settings.data_options)
    except TrainlabError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {said_by(error)}"
        where = told_place(own_line(error, workload.place) or workload.place)
        raise WorkloadError(f"{where}{workload.name}: data raised {reason}") from error
    if not isinstance(dataset, Dataset):
        where = told_place(line_of(workload.data) or workload.place)
        rule = "must be trainlab.Dataset"
        raise WorkloadError(f"{where}{workload.name}: data gave {gave(dataset)}, {rule}")
    return dataset
