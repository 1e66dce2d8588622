"""A run as tidy tables for other programs: its trials, their curves, what steps cost. Units in headings."""

import statistics
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.results import (
    heading,
    results_table,
    settings_of,
    trial_table,
    with_settings,
)
from trainlab.record.run_folder import RunFolder


@dataclass(frozen=True)
class Exported:
    """What was written, and where."""

    paths: tuple[Path, ...] = ()
    """Files, for every format but mlflow."""
    experiment: str = ""
    """This and the next: the experiment in MLflow, and the tracking server it is on."""
    tracking_uri: str = ""
    num_new: int = 0
    """MLflow runs that this export has made."""
    num_there: int = 0
    """Trials whose MLflow runs were there already, and as the trial is."""
    num_left_out: int = 0
    """Trials that have not ended; a later export adds them."""


def tables_of(evidence: Evidence, folder: RunFolder) -> dict[str, pd.DataFrame]:
    """`results`, a row per trial; `curves`, a row per point; `cost`, a row per process that was measured.
    A table without rows is left out."""
    trials = trial_table(evidence)
    tables = {
        "results": results_table(evidence),
        "curves": _curves(evidence, folder).rename(columns=heading).convert_dtypes(),
    }
    cost = trials[trials["kind"] == "cost"].reset_index(drop=True)
    if len(cost):
        phases = pd.DataFrame([_process(evidence, str(trial)) for trial in cost["trial"]])
        known = pd.concat([cost.dropna(axis=1, how="all"), phases], axis=1)
        tables["cost"] = with_settings(known, evidence)
    return {name: table for name, table in tables.items() if len(table)}


def _process(evidence: Evidence, trial_id: str) -> dict[str, float]:
    """What the process of a trial recorded beside the median step; nothing where it timed no steps."""
    processes = (measurement.process(trial_id) for measurement in evidence.measured)
    process = next((one for one in processes if one is not None), None)
    if process is None:
        return {}
    record, _ = process
    first = {"first_step_ms": record.warmup_ms[0]} if record.warmup_ms else {}
    medians = {f"{name}_ms": statistics.median(ms) for name, ms in record.phases_ms.items()}
    return {"num_steps": len(record.step_ms), **first, **medians}


def _curves(evidence: Evidence, folder: RunFolder) -> pd.DataFrame:
    """Every point of every learn trial: of kind `step` within an epoch, of kind `epoch` at its end."""
    rows = []
    for trial in (trial for trial in evidence.trials if trial.kind == "learn"):
        settings = settings_of(trial)
        levels = {name: settings.get(name) for name in evidence.factors}
        about = {"trial": trial.id, "cell": trial.cell, **levels, "seed": trial.seed}
        for line in folder.trial(trial.id).curve():
            rows.append(about | {("point" if n == "kind" else n): v for n, v in line.items()})
    return pd.DataFrame(rows)
