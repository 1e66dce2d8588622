"""A run as tidy tables for other programs: its trials, their curves, what steps cost. Units in headings."""

import statistics
from collections.abc import Mapping
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
COST_ONLY = ("mode", "watch", "weights", "again")
COSTS = (
    *("step_ms", "sample_us", "epoch_s", "samples_per_s", "peak_mib", "speedup", "efficiency"),
)


def tables_of(evidence: Evidence, folder: RunFolder) -> dict[str, pd.DataFrame]:
    """`results`, a row per trial; `curves`, a row per point; `cost`, a row per process that was measured.
    A table without rows is left out."""
    tables = {
        "results": _results(evidence),
        "curves": _curves(evidence, folder),
        "cost": _cost(evidence),
    }
    return {name: _headed(table) for name, table in tables.items() if len(table)}


def settings_of(trial: TrialRecord) -> dict[str, Any]:
    """Every setting of a trial by its name, those in tables as `model.hidden`; without those not set."""
    flat: dict[str, Any] = {}
    for name, value in trial.settings.items():
        inner = value if isinstance(value, Mapping) else {}
        flat |= {f"{name}.{key}": one for key, one in inner.items()}
        if not isinstance(value, Mapping) and value is not None:
            flat[name] = value
    return flat | seen_of(trial)


def seen_of(trial: TrialRecord) -> dict[str, Any]:
    """Of a trial of a script: what it was seen to use."""
    if "optimizer" in trial.settings:
        return {}
    return {f"seen.{name}": value for name, value in trial.resolved.items()}


def _results(evidence: Evidence) -> pd.DataFrame:
    """Every trial with its settings; costs are in a table of their own."""
    table = trial_table(evidence)
    return _with_settings(table.drop(columns=[c for c in COSTS if c in table]), evidence)


def _cost(evidence: Evidence) -> pd.DataFrame:
    """Every cost trial: what a step took, the median of each phase, and the first step of the process."""
    table = trial_table(evidence)
    table = table[table["kind"] == "cost"].reset_index(drop=True)
    learned = [*evidence.metrics, "total_s", "train_s_per_epoch"]
    table = table.drop(columns=[name for name in learned if name in table])
    phases = pd.DataFrame([_process(evidence, str(trial)) for trial in table["trial"]])
    return _with_settings(pd.concat([table, phases], axis=1), evidence)


def _process(evidence: Evidence, trial_id: str) -> dict[str, float]:
    """What the process of a trial recorded beside the median step; nothing where it timed no steps."""
    records = (measurement.cost_of(trial_id) for measurement in evidence.measured)
    record = next((one for one in records if one is not None), None)
    if record is None:
        return {}
    first = {"first_step_ms": record.warmup_ms[0]} if record.warmup_ms else {}
    medians = {f"{name}_ms": statistics.median(ms) for name, ms in record.phases_ms.items()}
    return {"num_steps": len(record.step_ms), **first, **medians}


def _curves(evidence: Evidence, folder: RunFolder) -> pd.DataFrame:
    """Every point of every learn trial: of kind `step` within an epoch, of kind `epoch` at its end."""
    trials = [trial for trial in evidence.trials if trial.kind == "learn"]
    rows = [
        {"trial": trial.id, "cell": trial.cell, **_levels(trial, evidence), "seed": trial.seed}
        | {("point" if name == "kind" else name): value for name, value in line.items()}
        for trial in trials
        for line in folder.trial(trial.id).curve()
    ]
    return pd.DataFrame(rows)


def _levels(trial: TrialRecord, evidence: Evidence) -> dict[str, Any]:
    """What the study varies, as the trial had it."""
    settings = settings_of(trial)
    return {name: settings.get(name) for name in evidence.factors}


def _with_settings(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The table of trials with a column for every setting, after those that it has."""
    by_trial = {trial.id: settings_of(trial) for trial in evidence.trials}
    settings = pd.DataFrame([by_trial[str(trial)] for trial in table["trial"]], index=table.index)
    known = table.drop(columns=[name for name in table if name in settings])
    return pd.concat([known, settings], axis=1)


def _headed(table: pd.DataFrame) -> pd.DataFrame:
    """With units in the headings, and every column of one type."""
    return table.rename(columns=heading).convert_dtypes()


def heading(name: str) -> str:
    """`batch_size [samples]`, `test/accuracy [share]`; a name that says its unit, as step_ms, stays."""
    unit = setting_of(TrainSpec, name).unit
    if unit in COUNTED and unit not in name:
        return f"{name} [{unit}]"
    return f"{name} [share]" if "/" in name and is_share(name) else name
