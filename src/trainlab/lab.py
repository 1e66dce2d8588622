"""The bench from Python: run a study, open a run, ask for its tables and findings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.analyse.evidence import Evidence, gather
from trainlab.analyse.findings.all import findings
from trainlab.errors import WorkloadError
from trainlab.record.folder import RunFolder
from trainlab.report.sentences import sentence

if TYPE_CHECKING:
    import pandas as pd

    from trainlab.analyse.findings.finding import Finding
    from trainlab.train.moments import Instrument
    from trainlab.workloads.workload import Workload


class Run(RunFolder):
    """A run folder that can be asked what it shows."""

    _read: Evidence | None = None

    def evidence(self) -> Evidence:
        """All its records, arranged by cell; read again only while trials are still to come."""
        if self._read is None or not self._read.is_complete:
            self._read = gather(self)
        return self._read

    def results(self) -> "pd.DataFrame":
        """One row per trial: levels, seed, state, final metrics, time, cost."""
        from trainlab.analyse.results import trial_table

        return trial_table(self.evidence())

    def epochs(self) -> "pd.DataFrame":
        """One row per learn trial and epoch."""
        from trainlab.analyse.results import epoch_table

        return epoch_table(self.evidence())

    def probes(self) -> "pd.DataFrame":
        """One row per value of a probe."""
        from trainlab.analyse.probes import probe_table

        return probe_table(self.evidence().probed)

    def findings(self) -> "tuple[Finding, ...]":
        """What the study shows and what it cannot tell, as values."""
        return findings(self.evidence())

    def sentences(self, lang: str = "en") -> list[str]:
        """The findings in words."""
        return [sentence(found, lang) for found in self.findings()]


def finish(folder: RunFolder) -> Evidence:
    """Reads what a run has shown and writes its tables: results.csv, results.parquet, epochs.csv."""
    from trainlab.analyse.results import write_results

    evidence = gather(folder)
    write_results(folder, evidence)
    return evidence


def open_run(path: Path | str) -> Run:
    """A run folder of this or another machine."""
    run = Run(Path(path))
    run.study()
    return run


def run(
    workload: "str | Workload",
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 1,
    design: str = "grid",
    out: Path | str | None = None,
    instruments: "Sequence[Instrument]" = (),
    profile: bool | Mapping[str, Any] = False,
    many: bool = False,
    **given: Any,
) -> Run:
    """Trains a workload in every cell with every seed and returns its run.

    `workload` is a name, `FILE.py:NAME` or a Workload; `vary` maps factors to levels; `seeds` is a number
    of seeds or the seeds themselves; `profile` also measures what a step costs, untrained and trained (a
    mapping sets fields of CostSpec); `many` allows more than 500 trials. All else is a setting, as in
    TrainSpec, or a field of Question. For example
    `trainlab.run("fashion-mlp", vary={"lr": [1e-2, 1e-3]}, seeds=5).results()`.
    """
    from trainlab.execute.resolve import resolve
    from trainlab.execute.run import run_study, start_run
    from trainlab.execute.worker import Loader
    from trainlab.machine.denormals import flush_denormals, flushes_denormals
    from trainlab.spec import CostSpec, Question, checked
    from trainlab.spec.question import checked_question
    from trainlab.workloads.workload import Workload

    load, reference = Loader(), workload
    if isinstance(workload, Workload):
        reference = f"{workload.name} (given as an object)"
        load = Loader({reference: workload})
    fields = {n: v for n, v in given.items() if n in Question.model_fields and n != "settings"}
    settings = {n: v for n, v in given.items() if n not in fields}
    if profile is not False:
        if isinstance(workload, Workload):
            raise WorkloadError(
                f"{workload.name}: cost is measured in fresh processes, which cannot get an object; "
                "name it as FILE.py:NAME"
            )
        asked = {} if profile is True else profile
        fields["cost"] = checked(CostSpec, {"weights": "both", **asked}, "profile")
    values = {
        **fields,
        "workload": reference,
        "settings": settings,
        "vary": {name: _levels(levels) for name, levels in (vary or {}).items()},
        "seeds": seeds if isinstance(seeds, int) else tuple(seeds),
        "design": design,
    }
    flushed = flushes_denormals()
    try:
        study = resolve(load, checked_question(values), many=many)
        folder = start_run(study, None if out is None else Path(out))
        run_study(folder, instruments, load)
    finally:
        flush_denormals(bool(flushed))  # the caller's process computes as it did before
    finish(folder)
    return Run(folder.path)


def _levels(given: Any) -> Any:
    """Any series as levels; a single value is left for the check, which says what is wanted."""
    is_series = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    return tuple(given) if is_series else given
