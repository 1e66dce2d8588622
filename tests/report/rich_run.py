"""A made-up run with everything a report can show: learning, cost, layers, operators, a cold start."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fabricate import Fabricated, confusion, made_study, operator
from trainlab.analysis.document import Document, Section
from trainlab.analysis.evidence import gather
from trainlab.analysis.finding import RunData
from trainlab.analysis.overview import data_of
from trainlab.plan import Trial
from trainlab.record.cost_record import ColdStep, LayerRow
from trainlab.record.run_folder import RunFolder
from trainlab.report.contents import report_of
from trainlab.spec import Study

ACCURACY = {1: 0.90, 16: 0.95, 64: 0.93}


def rich_study(**asked: Any) -> Study:
    """Three batch sizes, eight seeds, cost in both modes."""
    usual = {"title": "What does the batch size do?", "seeds": 8}
    usual |= {"vary": {"batch_size": [1, 16, 64]}, "cost": {"mode": "both", "processes": 3}}
    usual |= {"targets": {"test/accuracy": 0.94}, "margins": {"test/accuracy": 0.005}}
    return made_study(**(usual | asked))


def rich_run(
    path: Path,
    study: Study | None = None,
    layers: Callable[[Trial], list[LayerRow]] | None = None,
    classes: Sequence[str] = (),
    side: int = 8,
    **told: Any,
) -> RunFolder:
    """The folder; whatever is told overrides what the records say. With `classes`, trials confused them and
    have pictures of so many pixels a side."""
    records = Fabricated(**{"final": _final, "step_ms": _step_ms, "rows": _rows, **told})
    records.step_points = 2
    folder = records.write(path, rich_study() if study is None else study)
    for trial in folder.trials():
        home = folder.trial(trial.id)
        if classes and trial.kind == "learn":
            counts = confused_counts(len(classes), trial.seed)
            home.confusion.write(confusion(counts, trial.seed, classes, side))
        if home.layers.exists():
            size = trial.settings["batch_size"]
            rows = _layers(size) if layers is None else layers(trial)  # type: ignore[arg-type]
            home.layers.write(home.layers.read().model_copy(update=_watched(rows)))
        if home.operators.exists():
            pairs = {"bare_ms": [1.0] * 8, "profiled_ms": [1.1] * 8}
            home.operators.write(home.operators.read().model_copy(update=pairs))
        if home.cost.exists():
            steps = {"cold": [_step(30.0, 500)], "settled": [_step(1.0, 0)] * 3}
            warm = {"warmup_ms": [30.0, 2.0, 1.0]}
            home.cost.write(home.cost.read().model_copy(update={**steps, **warm}))
    return folder


def confused_counts(number: int, seed: int) -> list[list[int]]:
    """100 samples of each class; the second and first are confused most, and more so in later seeds."""
    counts = []
    for a in range(number):
        row = [(a + b + seed) % 3 * (0 < abs(a - b) < 3) for b in range(number)]
        if a == 1:
            row[0] = 20 + seed
        row[a] = 100 - sum(row)
        counts.append(row)
    return counts


def rich_data(path: Path, **told: Any) -> RunData:
    """What the report of such a run is made from."""
    return run_data(rich_run(path, **told))


def run_data(folder: RunFolder) -> RunData:
    """What the report of a run is made from."""
    return data_of(gather(folder))


def rich_report(path: Path, lang: str = "en", **told: Any) -> Document:
    """The document of such a run."""
    return report_of(rich_data(path, **told), lang)


def section_of(document: Document, name: str) -> Section:
    """A section by its id."""
    return next(section for section in document.sections if section.id == name)


def row(name: str, inputs: list[int], **told: Any) -> LayerRow:
    """One call of a layer."""
    usual: dict[str, Any] = {"call": 1, "kind": "module", "type": "Linear", "phase": "forward"}
    usual |= {"output_shapes": [[16, 32]], "num_parameters": 1056}
    usual |= {"forward_flops": 32768, "forward_bytes": 4096, "output_bytes": 2048}
    usual |= {"backward_flops": 65536, "backward_bytes": 8192, "saved_bytes": 2048}
    usual |= {"first_forward_us": 900.0, "forward_us": [100.0]}
    usual |= {"backward_us": [200.0]}
    return LayerRow(name=name, inputs=inputs, **{**usual, **told})


def _final(trial: Trial) -> dict[str, float]:
    """Accuracy by batch size, with a little luck by seed that all cells share."""
    luck = 0.0004 * trial.seed + 0.0001 * ((trial.seed * trial.settings.batch_size) % 5)
    accuracy = ACCURACY.get(trial.settings.batch_size, 0.9) + luck
    return {"train/loss": 1.1 - accuracy, "test/loss": 1.2 - accuracy, "test/accuracy": accuracy}


def _step_ms(trial: Trial, process: int) -> float:
    return (0.5 + 0.02 * trial.settings.batch_size) * (1 + 0.004 * process)


def _rows(trial: Trial) -> list[Any]:
    size = trial.settings.batch_size
    return [
        operator("aten::addmm", 300.0 + size, 2),
        operator("aten::relu", 150.0, 3),
        *(operator(f"aten::small{number}", 20.0 - number) for number in range(12)),
    ]


def _layers(size: int) -> list[LayerRow]:
    loss: dict[str, Any] = {"kind": "function", "phase": "loss", "output_shapes": [[]]}
    return [
        row("fc1", [-1], output_shapes=[[size, 32]]),
        row("relu", [0], type="relu", kind="function", num_parameters=0),
        row("fc2", [1], output_shapes=[[size, 10]]),
        row("add", [0, 2], type="add", kind="function", num_parameters=0),
        row("nll_loss", [-1, 3], type="nll_loss", **loss),
    ]


def _watched(rows: list[LayerRow]) -> dict[str, Any]:
    whole = {"forward": [1000.0], "loss": [100.0], "backward": [1500.0]}
    return {"rows": rows, "phases_us": whole, "bare_ms": [1.0] * 8, "watched_ms": [1.2] * 8}


def _step(ms: float, faults: int) -> ColdStep:
    phases = {"forward": 0.7 * ms, "optimizer": 0.3 * ms}
    unknown = {"libraries_loaded": None, "device_allocations": None}
    counts = {"page_faults": faults, "modules_imported": 2 if faults else 0}
    return ColdStep(phases_ms=phases, in_phases={"forward": counts}, **counts, **unknown)
