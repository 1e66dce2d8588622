"""Results as tables: a row per trial, per epoch, per value of a probe."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trainlab.analysis.classes import best_confusion
from trainlab.analysis.energy import epochs_j, run_sample_mj
from trainlab.analysis.evidence import Evidence, TrialRecords
from trainlab.analysis.measurement import epoch_s_of
from trainlab.record.files import make_folder, replacing
from trainlab.record.learning_record import HistogramRecord, ProbeRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.settings import scalar_of
from trainlab.spec.study import level_text
from trainlab.words.numbers import is_share

COUNTED = ("samples", "updates", "epochs", "threads", "processes")
"""Units of settings that are counts of something; the others are no units, but how to write a value."""
TRIAL_COLUMNS = ("trial", "cell", "seed", "state")
"""The first columns of every table of probes."""
trial_columns = attrgetter("id", "cell", "seed", "state")


def trial_table(evidence: Evidence) -> pd.DataFrame:
    """One row per trial: what it was, how it ended, its metrics and costs; empty where it has none."""
    rows = (_trial_fields(evidence, one) | trial_values(evidence, one) for one in evidence.trials)
    return pd.DataFrame(rows)


def results_table(evidence: Evidence) -> pd.DataFrame:
    """The same with every setting, and units in headings: results.csv, wherever it is written."""
    return with_settings(trial_table(evidence), evidence)


def with_settings(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """A table of trials with a column for every setting after those that it has, and units in headings."""
    by_trial = {
        trial.id: {n: trial.resolved.get(n) for n in evidence.factors} | settings_of(trial)
        for trial in evidence.trials
    }
    settings = pd.DataFrame([by_trial[str(trial)] for trial in table["trial"]], index=table.index)
    known = table.drop(columns=[name for name in table if name in settings])
    return pd.concat([known, settings], axis=1).rename(columns=heading).convert_dtypes()


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


def heading(name: str) -> str:
    """`batch_size [samples]`, `test/accuracy [share]`; a name that says its unit, as step_ms, stays."""
    unit = setting_of(TrainSpec, name).unit
    if unit in COUNTED and unit not in name:
        return f"{name} [{unit}]"
    return f"{name} [share]" if "/" in name and is_share(name) else name


def epoch_table(evidence: Evidence) -> pd.DataFrame:
    """One row per learn trial and epoch: metrics and times as in the curve. Trials that have ended come
    before those that have begun."""
    curves = [(one.trial, one.epochs) for one in evidence.all_learned]
    curves += [(t, evidence.begun[t.id].epochs) for t in evidence.trials if t.id in evidence.begun]
    rows = [
        {**_trial_fields(evidence, trial), **{n: v for n, v in line.items() if n != "kind"}}
        for trial, epochs in curves
        for line in epochs
    ]
    return pd.DataFrame(rows)


def probe_table(trials: Sequence[TrialRecords]) -> pd.DataFrame:
    """One row per value, with its trial; histograms are in `histogram_table`."""
    columns = [*TRIAL_COLUMNS, *ProbeRecord.model_fields, "target"]
    rows = [
        (*trial_columns(probed.trial), *line.model_dump().values(), line.target)
        for probed in trials
        for line in probed.lines
        if line.histogram is None
    ]
    return pd.DataFrame(rows, columns=columns).drop(columns="histogram")


def histogram_table(trials: Sequence[TrialRecords]) -> pd.DataFrame:
    """One row per bin: its edges and how many elements fell into it."""
    columns = [*TRIAL_COLUMNS, "probe", "target", "epoch", "step", "low", "high", "num_elements"]
    rows = [
        (*trial_columns(probed.trial), line.probe, line.target, line.epoch, line.step, *edges_count)
        for probed in trials
        for line in probed.lines
        if line.histogram is not None
        for edges_count in _bins(line.histogram)
    ]
    return pd.DataFrame(rows, columns=columns)


def write_results(folder: RunFolder, evidence: Evidence) -> list[Path]:
    """results.csv, results.parquet, epochs.csv and probes.csv; the same records give the same bytes."""
    results, epochs = results_table(evidence), epoch_table(evidence)
    tables = {folder.results_csv: csv_of(results)}
    tables[folder.results_parquet] = results.to_parquet(index=False)
    if len(epochs):
        tables[folder.epochs_csv] = csv_of(epochs)
    if evidence.probed:
        tables[folder.probes_csv] = csv_of(probe_table(evidence.probed))
    make_folder(folder.path)
    for path, content in tables.items():
        with replacing(path) as part:
            part.write_bytes(content)
    return list(tables)


def csv_of(table: pd.DataFrame) -> bytes:
    """A table as CSV, in which no text is taken for a formula."""

    def plain(value: object) -> object:
        is_text = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        return f"'{value}" if is_text and isinstance(scalar_of(str(value)), str) else value

    return table.map(plain).to_csv(index=False, lineterminator="\n").encode()


def _trial_fields(evidence: Evidence, trial: TrialRecord) -> dict[str, Any]:
    # A script has its own.
    has_weights = trial.kind == "cost" and "optimizer" in trial.settings
    weights = "trained" if trial.weights_of else "untrained"
    return {
        "trial": trial.id,
        "kind": trial.kind,
        "cell": trial.cell,
        # As text: a column of a table has one type, levels of a factor may have several.
        **{name: _level(trial, name) for name in evidence.factors},
        "seed": trial.seed,
        "state": trial.state,
        "mode": trial.mode or "",
        "watch": trial.watch or "",
        "weights": weights if has_weights else "",
        "again": trial.again,
        "device_name": trial.resolved.get("device_name", ""),
    }


def _level(trial: TrialRecord, factor: str) -> str:
    """As users write it; where the cell does not set it, the resolved value, else empty."""
    outer, dot, inner = factor.partition(".")
    setting = trial.settings.get(outer)
    value = trial.levels.get(factor, (setting or {}).get(inner) if dot else setting)
    value = trial.resolved.get(factor) if value is None else value
    return "" if value is None else level_text(value)


def trial_values(evidence: Evidence, trial: TrialRecord) -> dict[str, float]:
    """What a trial comes to: metrics of its last epoch, times, costs."""
    values = _learn_values if trial.kind == "learn" else _cost_values
    return dict(values(evidence, trial))


def _learn_values(evidence: Evidence, trial: TrialRecord) -> Iterator[tuple[str, float]]:
    """A trial that did not end well has its rows, so that it is seen, but no values."""
    learned = evidence.learned.get(trial.cell, {}).get(trial.seed)
    for name in evidence.metrics:
        yield name, math.nan if learned is None else learned.value(name)
    if trial.state == "done" and trial.total_s is not None:
        yield "total_s", trial.total_s
    epoch_s = learned.epoch_s() if trial.state == "done" and learned is not None else None
    if epoch_s is not None:
        yield "train_s_per_epoch", epoch_s
    if learned is not None and learned.watched is not None and learned.watched.energy:
        if (mj := run_sample_mj(learned.watched)) is not None:
            yield "sample_mj", mj
        yield "epoch_j", statistics.fmean(epochs_j(learned.watched))


def _cost_values(evidence: Evidence, trial: TrialRecord) -> Iterator[tuple[str, float]]:
    mode, is_trained = trial.mode or "", trial.weights_of is not None
    measurement = evidence.measurement(trial.cell, mode, again=trial.again, trained=is_trained)
    if measurement is None:
        return
    if trial.watch == "layers" and measurement.peak_mib is not None:
        yield "peak_mib", measurement.peak_mib
    if (process := measurement.process(trial.id)) is not None:
        record, step = process
        yield "step_ms", step
        yield "sample_us", step * 1e3 / record.batch_size
        if measurement.knows_epochs:
            yield "epoch_s", epoch_s_of(record, step)
        yield "samples_per_s", record.batch_size * 1e3 / step
        if (mj := record.sample_mj) is not None:
            yield "sample_mj", mj
            if measurement.knows_epochs:
                yield "epoch_j", mj * record.num_samples / 1e3


def _bins(histogram: HistogramRecord) -> Iterator[tuple[float, float, int]]:
    """Low edge, high edge and count of every bin, the two open ones included."""
    spaced = np.geomspace if histogram.log else np.linspace
    edges = spaced(histogram.low, histogram.high, len(histogram.counts) + 1).tolist()
    lowest = 0.0 if histogram.log else -math.inf
    counts = (histogram.below, *histogram.counts, histogram.above)
    yield from zip([lowest, *edges], [*edges, math.inf], counts, strict=True)


def confusion_table(evidence: Evidence) -> pd.DataFrame:
    """Test samples of the best setting by true class (rows) and by the class they were taken for."""
    if (found := best_confusion(evidence)) is None:
        return pd.DataFrame()
    true, said = (pd.Index(found.classes, name=name) for name in ("true", "said"))
    return pd.DataFrame(found.counts, index=true, columns=said)
