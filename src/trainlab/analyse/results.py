"""Results as tables: a row per trial, a tidy row per trial and metric, a row per epoch."""

import math
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.probes import probe_table
from trainlab.record.folder import RunFolder
from trainlab.record.trial import TrialRecord
from trainlab.spec.cell import level_text

if TYPE_CHECKING:
    import pandas as pd

UNITS = {
    "total_s": "s",
    "train_s_per_epoch": "s",
    "step_ms": "ms",
    "sample_us": "us",
    "epoch_s": "s",
    "samples_per_s": "1/s",
    "peak_mib": "MiB",
}
"""Of the columns that have one; losses and accuracies are bare numbers."""


def trial_table(evidence: Evidence) -> "pd.DataFrame":
    """One row per trial: what it was, how it ended, its metrics and costs; empty where it has none."""
    import pandas as pd

    return pd.DataFrame(
        [_about(evidence, trial) | _values(evidence, trial) for trial in evidence.trials]
    )


def tidy_table(evidence: Evidence) -> "pd.DataFrame":
    """One row per trial and metric, with its unit."""
    import pandas as pd

    rows = [
        {**_about(evidence, trial), "metric": name, "unit": UNITS.get(name, ""), "value": value}
        for trial in evidence.trials
        for name, value in _values(evidence, trial).items()
    ]
    columns = [*_columns(evidence), "metric", "unit", "value"]
    return pd.DataFrame(rows, columns=columns)


def epoch_table(evidence: Evidence) -> "pd.DataFrame":
    """One row per learn trial and epoch: metrics and times as in the curve."""
    import pandas as pd

    rows = [
        {**_about(evidence, one.trial), **{n: v for n, v in line.items() if n != "kind"}}
        for seeds in evidence.learned.values()
        for one in seeds.values()
        for line in one.epochs
    ]
    return pd.DataFrame(rows)


def write_results(folder: RunFolder, evidence: Evidence) -> None:
    """results.csv, results.parquet and epochs.csv; the same records give the same bytes."""
    tidy = tidy_table(evidence)
    folder.write_table(folder.results_csv, tidy.to_csv(index=False, lineterminator="\n").encode())
    folder.write_table(folder.results_parquet, _parquet(tidy))
    epochs = epoch_table(evidence)
    if len(epochs):
        text = epochs.to_csv(index=False, lineterminator="\n")
        folder.write_table(folder.epochs_csv, text.encode())
    if evidence.probed:
        text = probe_table(evidence.probed).to_csv(index=False, lineterminator="\n")
        folder.write_table(folder.probes_csv, text.encode())


def _parquet(table: "pd.DataFrame") -> bytes:
    import io

    content = io.BytesIO()
    table.astype({"value": "float64"}).to_parquet(content, index=False)
    return content.getvalue()


def _about(evidence: Evidence, trial: TrialRecord) -> dict[str, Any]:
    return {
        "trial": trial.id,
        "kind": trial.kind,
        "cell": trial.cell,
        # As text: a column of a table has one type, levels of a factor may have several.
        **{name: _level(trial, name) for name in evidence.factors},
        "seed": trial.seed,
        "state": trial.state,
        "mode": (trial.cost or {}).get("mode", ""),
        "watch": trial.watch or "",
        "weights": "" if trial.kind == "learn" else _weights(trial),
        "again": trial.again,
        "device_name": trial.resolved.get("device_name", ""),
    }


def _columns(evidence: Evidence) -> list[str]:
    return list(_about(evidence, evidence.trials[0]))


def _weights(trial: TrialRecord) -> str:
    return "trained" if trial.weights_of else "untrained"


def _level(trial: TrialRecord, factor: str) -> str:
    """As users write it; what it became here where the cell leaves it open, else empty."""
    outer, dot, inner = factor.partition(".")
    asked = trial.settings.get(outer)
    value = trial.levels.get(factor, (asked or {}).get(inner) if dot else asked)
    value = trial.resolved.get(factor) if value is None else value
    return "" if value is None else level_text(value)


def _values(evidence: Evidence, trial: TrialRecord) -> dict[str, float]:
    return dict(
        _learn_values(evidence, trial) if trial.kind == "learn" else _cost_values(evidence, trial)
    )


def _learn_values(evidence: Evidence, trial: TrialRecord) -> Iterator[tuple[str, float]]:
    """A trial that did not end well has its rows, so that it is seen, but no values."""
    one = evidence.learned.get(trial.cell, {}).get(trial.seed)
    for name in evidence.metrics():
        yield name, math.nan if one is None else one.value(name)
    if trial.state == "done" and trial.total_s is not None:
        yield "total_s", trial.total_s
    if trial.state == "done" and one is not None and one.epochs:
        times = [float(line["train_s"]) for line in one.epochs]
        yield "train_s_per_epoch", statistics.fmean(times)


def _cost_values(evidence: Evidence, trial: TrialRecord) -> Iterator[tuple[str, float]]:
    found = evidence.measurement(
        trial.cell,
        (trial.cost or {}).get("mode", ""),
        again=trial.again,
        trained=trial.weights_of is not None,
    )
    if found is None:
        return
    if trial.watch == "layers" and found.memory is not None:
        yield "peak_mib", found.memory.peak_bytes / 2**20
    record = found.cost_of(trial.id)
    if record is not None:
        step = statistics.median(record.step_ms)
        yield "step_ms", step
        yield "sample_us", step * 1e3 / record.batch_size
        yield "epoch_s", step / record.batch_size * record.num_samples / 1e3
        yield "samples_per_s", record.batch_size * 1e3 / step
