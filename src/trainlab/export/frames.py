"""A run as tidy tables for other programs: its trials, their curves, what steps cost. Units in headings."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.results import trial_table
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of
from trainlab.words.numbers import is_share

COUNTED = ("samples", "updates", "epochs", "threads", "processes")
"""Units of settings that are counts of something; the others are no units, but how to write a value."""
COSTS = ["step_ms", "sample_us", "epoch_s", "samples_per_s", "peak_mib", "speedup", "efficiency"]


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
    learned = [*evidence.metrics, "total_s", "train_s_per_epoch"]
    cost = (
        trials[trials["kind"] == "cost"]
        .reset_index(drop=True)
        .drop(columns=learned, errors="ignore")
    )
    phases = pd.DataFrame([_process(evidence, str(trial)) for trial in cost["trial"]])
    tables = {
        "results": _with_settings(trials.drop(columns=COSTS, errors="ignore"), evidence),
        "curves": _curves(evidence, folder),
        "cost": _with_settings(pd.concat([cost, phases], axis=1), evidence),
    }
    return {
        name: table.rename(columns=heading).convert_dtypes()
        for name, table in tables.items()
        if len(table)
    }


def settings_of(trial: TrialRecord) -> dict[str, Any]:
    """Every setting of a trial by its name, those in tables as `model.hidden`; without those not set."""
    flat: dict[str, Any] = {}
    for name, value in trial.settings.items():
        inner = value if isinstance(value, Mapping) else {}
        flat |= {f"{name}.{key}": one for key, one in inner.items()}
        if not isinstance(value, Mapping) and value is not None:
            flat[name] = value
    if "optimizer" not in trial.settings:  # of a script: what it was seen to use
        flat |= {f"seen.{name}": value for name, value in trial.resolved.items()}
    return flat


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


def _with_settings(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The table of trials with a column for every setting, after those that it has."""
    by_trial = {trial.id: settings_of(trial) for trial in evidence.trials}
    settings = pd.DataFrame([by_trial[str(trial)] for trial in table["trial"]], index=table.index)
    known = table.drop(columns=[name for name in table if name in settings])
    return pd.concat([known, settings], axis=1)


def heading(name: str) -> str:
    """`batch_size [samples]`, `test/accuracy [share]`; a name that says its unit, as step_ms, stays."""
    unit = setting_of(TrainSpec, name).unit
    if unit in COUNTED and unit not in name:
        return f"{name} [{unit}]"
    return f"{name} [share]" if "/" in name and is_share(name) else name
