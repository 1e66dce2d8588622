"""Run folders made of records alone: what analysis reads, without any training."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from trainlab.plan import Trial, plan, trials_of
from trainlab.record import cost_record as cost
from trainlab.record.cost_record import CostRecord, LoadRecord, OperatorRow, TurnRecord
from trainlab.record.learning_record import (
    ConfusionRecord,
    FiredRecord,
    Mistake,
    Picture,
    ProbeRecord,
    ProbesRecord,
)
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.record.study_record import Environment, GroupRecord, StudyRecord
from trainlab.record.trial_record import DataRecord, Failure, TrialRecord
from trainlab.spec import Question, Study
from trainlab.spec.probe import probe_of
from trainlab.spec.question import layout_of, looks_of, seeds_of

ENVIRONMENT = Environment(
    cpu="Made-up CPU",
    num_vcpus=2,
    num_vcpus_usable=2,
    memory_gib=8.0,
    os="Linux",
    kernel="6.0",
    python="3.12.0",
    packages={"trainlab": "0.1.0", "torch": "2.9.0+cpu", "numpy": "2.0.0"},
    torch_threads=1,
    torch_interop_threads=1,
    git_commit="abc",
    git_dirty=False,
)
DATA = DataRecord(name="tiny", source="made up", is_subset=False, num_train=960, num_test=320)
QUIET = LoadRecord(others_cores=0.0, stolen_cores=0.0)
PHASES_MS = {
    "train": {"forward": 0.5, "optimizer": 0.25, "other": 0.25},
    "inference": {"forward": 0.75, "other": 0.25},
}


def confusion(
    counts: Sequence[Sequence[int]], seed: int = 0, classes: Sequence[str] = (), side: int = 0
) -> ConfusionRecord:
    """A record of these counts; its mistakes are drawn by chance, with pictures of `side` pixels."""
    chance = Random(repr((seed, counts)))
    number, num_samples = len(counts), sum(map(sum, counts))
    pairs = [(a, b) for a in range(number) for b in range(number) if a != b and counts[a][b]]
    mistakes = []
    for true, said in pairs[:12]:
        sure = chance.uniform(0.5, 1)
        picture = Picture.of(side, side, chance.randbytes(side * side)) if side else None
        which = {"index": chance.randrange(num_samples), "true": true, "said": said}
        odds = {"said_probability": sure, "true_probability": chance.uniform(0, 1 - sure)}
        mistakes.append(Mistake(**which, **odds, picture=picture))
    mistakes.sort(key=lambda one: -one.said_probability)
    table = {"num_samples": num_samples, "counts": tuple(map(tuple, counts))}
    return ConfusionRecord(**table, classes=tuple(classes), worst=tuple(mistakes))


FINAL = {"train/loss": 0.3, "test/loss": 0.4, "test/accuracy": 0.9}


def made_study(
    workload: str = "tiny", defaults: Mapping[str, Any] | None = None, **q: Any
) -> Study:
    """A study as `resolve` makes it, of a workload whose model takes `hidden`."""
    question = Question(workload=workload, **{"seeds": 3, **q})
    cells, _ = layout_of(question, {"epochs": 2, **(defaults or {})}, ("hidden",))
    varied = cells if len(cells) > 1 or cells[0].levels else ()
    of_study = {"vary", "design", "settings", "cells", "seeds", "name"}
    kept = question.model_dump(exclude={*of_study, "until_decided", "max_seeds"})
    return Study(
        **kept,
        name=question.name or "made",
        settings=cells[0].settings,
        cells=varied,
        seeds=seeds_of(question),
        looks=looks_of(question),
    )


@dataclass
class Fabricated:
    """What the records of a made-up run say; each is a function of the trial where it may vary."""

    final: Callable[[Trial], Mapping[str, float | None]] = lambda trial: FINAL
    """Metrics of the last epoch."""
    state: Callable[[Trial], str] = lambda trial: "done"
    step_ms: Callable[[Trial, int], float] = lambda trial, process: 1.0
    """The median step of a timed process, numbered from 1."""
    resolved: Callable[[Trial], Mapping[str, Any]] = lambda trial: {}
    """What differs from the usual."""
    data: Callable[[Trial], DataRecord] = lambda trial: DATA
    rows: Callable[[Trial], list[OperatorRow]] = lambda trial: [operator("aten::addmm", 400.0)]
    peak_bytes: Callable[[Trial], int] = lambda trial: 2**20 * trial.settings.batch_size
    phases_ms: Callable[[Trial], Mapping[str, float]] = lambda trial: (
        PHASES_MS[trial.cost.mode] if trial.cost else {}
    )
    takes_turns: bool = True
    """Whether timed processes took turns; earlier versions let each run by itself."""
    step_points: int = 0
    """Lines of kind `step` before each epoch's."""
    environment: Environment = ENVIRONMENT

    def write(self, path: Path, study: Study) -> RunFolder:
        """The folder, with a record of every trial that is planned."""
        folder, groups = RunFolder(path), plan(study)
        folder.trials_folder.mkdir(parents=True)
        environment = folder.write_environment(self.environment)
        rows = tuple(GroupRecord(trials=one.ids, is_alone=one.is_alone) for one in groups)
        made = {"created": "2026-01-01T00:00:00+00:00", "trainlab": "0.1.0"}
        asked = {"command": "trainlab run", "study": study.model_dump(mode="json")}
        folder.write_study(StudyRecord(name=study.name, groups=rows, **made, **asked))
        for trial in trials_of(groups):
            self.write_trial(folder.trial(trial.id), trial, environment)
        return folder

    def write_trial(self, home: TrialFolder, trial: Trial, environment: str) -> None:
        state = self.state(trial)
        record = TrialRecord(**trial.model_dump(mode="json"))
        if state == "pending":
            home.write(record)
            return
        final = dict(self.final(trial)) if trial.kind == "learn" else {}
        told: dict[str, Any] = {
            "state": state,
            "attempt": 1,
            "environment": environment,
            "resolved": usual(trial) | dict(self.resolved(trial)),
            "data": self.data(trial),
            "total_s": 2.0,
            "epochs_done": trial.settings.epochs,
            "final": final,
        }
        if state == "diverged":
            told["diverged_at_step"] = 7
        if state == "failed":
            told["error"] = Failure(kind="RuntimeError", message="it broke", traceback="")
        home.write(record.model_copy(update=told))
        if trial.kind == "learn":
            self._write_curve(home, trial, final)
        elif state == "done":
            self._write_cost(home, trial)

    def _write_curve(
        self, home: TrialFolder, trial: Trial, final: Mapping[str, float | None]
    ) -> None:
        lines = []
        for epoch in range(1, trial.settings.epochs + 1):
            place = {"epoch": epoch, "step": 10 * epoch, "samples": 100 * epoch}
            step = {"kind": "step", **place, "train/loss": 0.5, "time_s": float(epoch)}
            lines += [step] * self.step_points
            times = {"time_s": float(epoch), "train_s": 0.75, "test_s": 0.25}
            lines.append({"kind": "epoch", **place, **final, **times})
        home.curve_file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _write_cost(self, home: TrialFolder, trial: Trial) -> None:
        assert trial.cost is not None
        mode, size = trial.cost.one_mode, trial.settings.batch_size
        if trial.watch == "operators":
            facts = {"num_steps": 1, "profiled_step_us": 1000.0, "calls_are_equal": True}
            rows = self.rows(trial)
            record = cost.OperatorsRecord(mode=mode, batch_size=size, rows=rows, **facts)
            home.operators.write(record)
        elif trial.watch == "layers":
            self._write_layers(home, trial, mode, size)
        else:
            number = int(trial.id.rpartition("process")[2])
            step = self.step_ms(trial, number)
            bench = f"{mode}-{number}" if self.takes_turns else ""
            home.cost.write(made_cost(mode, size, step, self.phases_ms(trial), bench))

    def _write_layers(self, home: TrialFolder, trial: Trial, mode: Any, size: int) -> None:
        of_step: dict[str, Any] = {"mode": mode, "batch_size": size}
        times = {"phases_us": {"forward": [1.0]}, "bare_ms": [1.0], "watched_ms": [1.0]}
        calls = {"num_steps": 1, "calls_are_equal": True, "rows": [], "uncounted": []}
        home.layers.write(cost.LayersRecord(**of_step, **calls, **times))
        peak = self.peak_bytes(trial)
        parts = ("parameter", "buffer", "gradient", "optimizer", "input", "activation", "data")
        memory = {**{f"{part}_bytes": 0 for part in parts}, "peak_bytes": peak, "other_bytes": peak}
        memory |= {"source": "profiler", "at_peak": {}, "peak_phase": "backward"}
        home.memory.write(cost.MemoryRecord(**of_step, **memory))
        facts = {"device_name": "cpu", "threads": 1, "torch": "2.9.0", "measured": "2026-01-01"}
        best = {"flops_per_s": {"fp32": 1e9}, "bytes_per_s": 1e9}
        home.limits.write(cost.LimitsRecord(**facts, **best))


def usual(trial: Trial) -> dict[str, Any]:
    """What settings become, as a setup tells it."""
    settings = trial.settings
    return {
        "device": "cpu" if settings.device == "auto" else settings.device,
        "device_name": "cpu",
        "threads": settings.threads or 1,
        "lr": settings.start_lr,
        "optimizer_code": "fused",
        "log_every_steps": 5,
        "steps_per_epoch": max(1, 960 // settings.batch_size),
        "batch_size": min(settings.batch_size, 960),
        "num_parameters": 99,
        "num_trainable": 99,
        "allocator_keeps_memory": True,
        "flushes_denormals": True,
        "data_resident": True,
        "shuffle": True,
        "tf32": None,
    }


def operator(name: str, self_us: float, calls: int = 1) -> OperatorRow:
    """A row of the profiler over one step of 1,000 µs."""
    of_cpu = {"self_cpu_us": self_us, "total_cpu_us": self_us, "self_cpu_bytes": 0}
    of_device = dict.fromkeys(("self_device_us", "total_device_us", "self_device_bytes"), 0)
    facts: dict[str, Any] = {"kind": "operator", "phase": "forward", "calls": calls}
    return OperatorRow(name=name, **facts, **of_cpu, **of_device)


def made_turns(num_turns: int, num_bare: int = 1, num_marked: int = 0) -> list[TurnRecord]:
    """Quiet turns, one in each round."""
    quiet = {"others_cores": 0.0, "stolen_cores": 0.0}
    usual: dict[str, Any] = {"lead_ms": [9.0], "num_bare": num_bare, "num_marked": num_marked}
    return [TurnRecord(round=number, **usual, **quiet) for number in range(1, num_turns + 1)]


def made_cost(
    mode: Any, size: int, step_ms: float, phases: Mapping[str, float], bench: str = ""
) -> CostRecord:
    """Five bare steps, each a turn of its own in a bench, and one marked step."""
    turns = made_turns(5) if bench else []
    turns[:1] = [turn.model_copy(update={"num_marked": 1}) for turn in turns[:1]]
    phases_ms = {name: [value * step_ms] for name, value in phases.items()}
    times = {"step_ms": [step_ms] * 5, "phases_ms": phases_ms, "warmup_ms": [step_ms * 3]}
    first = {"cold": [], "settled": [], "round_steps": 5, "stopped": "tight", "load": QUIET}
    of_step = {"mode": mode, "batch_size": size, "num_samples": 960, "steps_per_epoch": 960 // size}
    return CostRecord(bench=bench, turns=turns, **of_step, **times, **first)


def probe_line(
    probe: str, layer: str, period: int, value: float | None, **told: Any
) -> ProbeRecord:
    """Of a period of ten steps, counted from 1; a value that is `None` is not finite."""
    spec = probe_of(probe)
    of_probe = {"quantity": spec.quantity, "reducer": spec.reducer, "every": str(spec.every)}
    counts = {"epoch": 1, "step": 10 * period, "num_steps": 10, "fired": 10, "count": 20}
    found = {"value": value, "not_finite": "nan" if value is None else None}
    return ProbeRecord(probe=str(spec), layer=layer, **{**of_probe, **counts, **found, **told})


def write_probes(home: TrialFolder, lines: Sequence[ProbeRecord]) -> None:
    """The lines, and which layers were probed, in the order of their first lines; layers are written last
    first, as gradients arrive."""
    places = {key: n for n, key in enumerate(dict.fromkeys((o.probe, o.layer) for o in lines))}
    written = sorted(lines, key=lambda one: -places[one.probe, one.layer])
    home.probes_file.write_text("".join(json.dumps(one.line()) + "\n" for one in written))
    rows = []
    for (probe, layer), place in places.items():
        type_, kind = (
            "ReLU" if layer == "relu" else "Linear",
            "parameter" if "." in layer else "module",
        )
        of_layer = {"probe": probe, "layer": layer, "type": type_, "kind": kind, "place": place}
        counts = {"fired": 100, "first_step": 1, "last_step": 400, "shapes": [[3, 4]]}
        rows.append(FiredRecord(**of_layer, **counts))
    home.probes.write(ProbesRecord(rows=rows))
