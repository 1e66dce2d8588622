"""A run held against an earlier one, from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainlab.errors import RecordError
from trainlab.lab.opened import Run, open_run
from trainlab.record.run_folder import RunFolder

if TYPE_CHECKING:
    from trainlab.analysis.gate.verdict import Gate


def gate(
    run: RunFolder | Path | str,
    *,
    against: RunFolder | Path | str,
    slower: float | None = None,
    worse: Mapping[str, float] | None = None,
    mode: str | None = None,
    any_host: bool = False,
) -> "Gate":
    """Whether a run is slower, or learns worse, than an earlier run of the same thing on the same machine.

    `slower` is how much longer a step may take (0.05, unless `worse` is given alone); `worse` maps metrics,
    as `test/accuracy`, to how much worse they may be; `mode` is train or inference; `any_host` allows
    another host's name. The `verdict` is `pass`, `fail` or `cannot tell`, and each setting has its own in
    `checks`. RecordError where the two cannot be compared. For example
    `trainlab.gate("runs/new", against="runs/old", slower=0.05).exit_code`.
    """
    from trainlab.analysis.gate import gate_of

    ours, theirs = _opened(run), _opened(against)
    if ours.path.resolve() == theirs.path.resolve():
        raise RecordError(f"{ours.path}: is compared with itself; name two run folders")
    return gate_of(
        ours.evidence(),
        theirs.evidence(),
        slower=slower,
        worse=worse,
        mode=mode,
        any_host=any_host,
    )


def _opened(run: RunFolder | Path | str) -> Run:
    if isinstance(run, Run):
        return run
    return open_run(run.path if isinstance(run, RunFolder) else run)
