"""trainlab: a lab bench for deep-learning training.

The names below are imported when first used; importing trainlab alone does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from trainlab.data.dataset import Dataset as Dataset
    from trainlab.data.dataset import Split as Split
    from trainlab.errors import TrainlabError as TrainlabError
    from trainlab.errors import TrialsFailedWarning as TrialsFailedWarning
    from trainlab.lab import Run as Run
    from trainlab.lab import gate as gate
    from trainlab.lab import open_run as open_run
    from trainlab.lab import profile as profile
    from trainlab.lab import run as run
    from trainlab.lab import search as search
    from trainlab.lab.inside import watch as watch
    from trainlab.plan import Trial as Trial
    from trainlab.record.run_folder import RunFolder as RunFolder
    from trainlab.spec import Study as Study
    from trainlab.spec import TrainSpec as TrainSpec
    from trainlab.train.callbacks import Instrument as Instrument
    from trainlab.watching.own_metrics import log as log
    from trainlab.workloads.workload import OfWholeSet as OfWholeSet
    from trainlab.workloads.workload import Workload as Workload

_HOMES = {
    name: f"trainlab.{module}"
    for module, names in {
        "data.dataset": "Dataset Split",
        "errors": "TrainlabError TrialsFailedWarning",
        "lab": "Run gate open_run profile run search",
        "lab.inside": "watch",
        "plan": "Trial",
        "record.run_folder": "RunFolder",
        "spec": "Study TrainSpec",
        "train.callbacks": "Instrument",
        "watching.own_metrics": "log",
        "workloads.workload": "OfWholeSet Workload",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
