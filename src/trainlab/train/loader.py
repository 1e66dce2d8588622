"""Loads workloads and their data, each once, so that all trials of a process really share them."""

from collections.abc import Mapping

from trainlab.data.dataset import Dataset
from trainlab.errors import TrainlabError, WorkloadError
from trainlab.train.seeds import seeded
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload


class Loader:
    """Workloads by what the user wrote, or given as objects; data by what was chosen."""

    def __init__(self, given: Mapping[str, Workload] | None = None) -> None:
        self._workloads = dict(given or {})
        self._datasets: dict[tuple[str, str], Dataset] = {}

    def workload(self, reference: str) -> Workload:
        """A workload given as an object, or found by its reference."""
        if reference not in self._workloads:
            self._workloads[reference] = find_workload(reference)
        return self._workloads[reference]

    def data(self, reference: str, choice: str) -> Dataset:
        """The workload's data; what it draws itself is the same for every trial and seed."""
        if (reference, choice) not in self._datasets:
            workload = self.workload(reference)
            with seeded(0, "data"):
                self._datasets[reference, choice] = _data_of(workload, choice)
        return self._datasets[reference, choice]


def _data_of(workload: Workload, choice: str) -> Dataset:
    """The user's function, its mistakes told as such."""
    try:
        dataset = workload.data(choice)
    except TrainlabError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{workload.name}: data raised {reason}") from error
    if not isinstance(dataset, Dataset):
        kind = type(dataset).__name__
        raise WorkloadError(f"{workload.name}: data gave {kind}, must be trainlab.Dataset")
    return dataset
