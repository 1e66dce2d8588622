"""Workloads given as objects, as files that fresh processes on this machine read.

What is importable goes by its name, as in any pickle; what was typed into a notebook, a session or a script
goes by value. The files lie in a folder that only this user can read, and are gone with the block.
"""

import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

from trainlab.errors import TrainlabError, WorkloadError, said_by
from trainlab.workloads.workload import Workload


@contextmanager
def sent_files(workloads: Mapping[str, Workload]) -> Iterator[dict[str, str]]:
    """The file of each workload, by the name that a study has for it; WorkloadError where one holds what no
    other process can have, such as an open file."""
    with tempfile.TemporaryDirectory(prefix="trainlab-sent-") as folder:
        files = {}
        for number, (name, workload) in enumerate(workloads.items()):
            file = Path(folder, f"{number}.pickle")
            file.write_bytes(_packed(workload))
            files[name] = str(file)
        yield files


def received(file: str, name: str) -> Workload:
    """The workload in a file that this user's driver has written; WorkloadError where it cannot be had."""
    try:
        workload = pickle.loads(Path(file).read_bytes())  # noqa: S301  from the driver of this process
    except Exception as error:
        reason = f"{type(error).__name__}: {said_by(error)}"
        raise WorkloadError(f"{name}: a fresh process cannot make it: {reason}") from error
    assert isinstance(workload, Workload)
    return workload


def _packed(workload: Workload) -> bytes:
    # Both are kept in the object: a fresh process could not look at its source again.
    assert workload.code is not None
    assert workload.facts is not None
    try:
        packed: bytes = cloudpickle.dumps(workload)
    except TrainlabError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {said_by(error)}".partition("\n")[0]
        raise WorkloadError(
            f"{workload.name}: cannot go to a fresh process: {reason}; name it as FILE.py:NAME"
        ) from error
    return packed
