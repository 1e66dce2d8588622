"""Exports to files: tidy tables, LaTeX that holds together, traces that Perfetto opens."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from command import Verb
from fabricate import Fabricated, made_study
from trainlab.export.latex import escaped
from trainlab.lab import open_run
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec


@pytest.fixture
def made(tmp_path: Path) -> RunFolder:
    """Two settings of two seeds, trained and measured."""
    asked = {"settings": {"model": {"hidden": 5}}, "cost": CostSpec(processes=3)}
    study = made_study(vary={"batch_size": (16, 64)}, seeds=2, **asked)
    return Fabricated(step_points=2).write(tmp_path / "r", study)


def test_several_formats_are_written_at_once_and_none_where_one_is_wrong(
    made: RunFolder, trainlab: Verb
) -> None:
    told = trainlab("export", "r", "--to", "csv,latx", code=2).stderr
    rule = "must be one of csv, parquet, latex, mlflow, perfetto; did you mean latex?"
    assert told == f"trainlab: --to: got 'latx', {rule}\n"
    assert not made.export_folder.exists()
    names = {
        Path(path).name for path in trainlab("export", "r", "--to", "csv, latex").stdout.split()
    }
    assert names >= {"results.csv", "tables.tex"}


def test_csv_has_every_trial_with_its_settings_seed_and_units(
    made: RunFolder, trainlab: Verb
) -> None:
    shown = trainlab("export", "r", "--to", "csv").stdout
    assert shown.split() == [f"r/export/{name}.csv" for name in ("results", "curves", "cost")]
    results, curves, cost = (pd.read_csv(path) for path in shown.split())
    trials = {trial.id: trial for trial in made.trials()}
    assert list(results["trial"]) == list(trials)
    for _, row in results.iterrows():
        trial = trials[row["trial"]]
        told = [row[name] for name in ("seed", "batch_size [samples]", "model.hidden", "epochs")]
        assert told == [trial.seed, trial.settings["batch_size"], 5, 2]
    learned = results[results["kind"] == "learn"]
    assert set(learned["test/accuracy [share]"]) == {0.9}
    num_points = sum(len(made.trial(trial).curve()) for trial in learned["trial"])
    assert len(curves) == num_points == 4 * 2 * 3
    assert set(curves["point"]) == {"step", "epoch"}
    assert set(curves.columns) >= {"trial", "seed", "batch_size [samples]", "time_s", "samples"}
    assert set(cost["trial"]) == {t.id for t in trials.values() if t.kind == "cost"}
    timed = cost[cost["watch"] == "steps"]
    assert set(timed["step_ms"]) == {1.0}
    assert set(timed["forward_ms"]) == {0.5}
    assert set(cost[cost["watch"] == "layers"]["peak_mib"]) == {16, 64}


def test_a_run_that_measured_no_cost_has_no_table_of_it(trainlab: Verb, tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "r", made_study(vary={"batch_size": (16, 64)}, seeds=2))
    shown = trainlab("export", "r", "--to", "csv").stdout
    assert shown.split() == ["r/export/results.csv", "r/export/curves.csv"]


def test_parquet_has_the_same_tables_with_numbers_as_numbers(
    made: RunFolder, tmp_path: Path
) -> None:
    csv = open_run(made.path).export("csv", tmp_path / "a").paths
    parquet = open_run(made.path).export("parquet", str(tmp_path / "b")).paths
    assert [path.name for path in parquet] == ["results.parquet", "curves.parquet", "cost.parquet"]
    for text, typed in zip(csv, parquet, strict=True):
        as_text, as_typed = pd.read_csv(text), pd.read_parquet(typed)
        assert list(as_text.columns) == list(as_typed.columns)
        assert len(as_text) == len(as_typed)
        assert pd.api.types.is_integer_dtype(as_typed["batch_size [samples]"])


def environments(tex: str) -> list[str]:
    return re.findall(r"\\(?:begin|end)\{(\w+)\}", tex)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_latex_tables_hold_together(made: RunFolder, lang: str, tmp_path: Path) -> None:
    tables, document = open_run(made.path).export("latex", tmp_path / "out", lang=lang).paths
    tex = tables.read_text(encoding="utf-8")
    assert environments(tex).count("tabular") == 2 * tex.count(r"\toprule") >= 4
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == tex.count(r"\caption{")
    unescaped = re.sub(r"\\[\\{}&%$#_]", "", tex)
    assert unescaped.count("{") == unescaped.count("}")
    table = r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}"
    for kinds, body in re.findall(table, tex, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(rows) >= 3
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(kinds) - 1}
    assert r"batch\_size=16 & 2 & 90.00\% {[}90.00, 90.00{]}" in tex
    assert r"$\mu$s per sample" in tex or lang == "zh"
    shell = document.read_text(encoding="utf-8")
    assert r"\usepackage{booktabs}" in shell
    assert r"\input{tables}" in shell
    assert (r"\usepackage{ctex}" in shell) == (lang == "zh")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(made: RunFolder, tmp_path: Path) -> None:
    open_run(made.path).export("latex", tmp_path / "out")
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "document.tex"]
    subprocess.run(words, cwd=tmp_path / "out", check=True, capture_output=True)
    assert (tmp_path / "out" / "document.pdf").stat().st_size > 1000


def test_no_text_breaks_out_of_a_latex_table() -> None:
    assert escaped("a_b\n50% [x] \\input{y}") == (r"a\_b 50\% {[}x{]} \textbackslash{}input\{y\}")


def trace(pid: int, start_us: float) -> dict[str, Any]:
    """As torch writes one."""
    at = {"pid": pid, "tid": 7}
    arrow = {"id": 4, "name": "ac2g", "cat": "ac2g", **at}
    named = {"ph": "M", "name": "process_name", "tid": 7, "ts": 0}
    events = [
        {**named, "pid": pid, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", **at, "ts": start_us, "dur": 3.0},
        {"ph": "s", **arrow, "ts": start_us + 1},
        {"ph": "f", **arrow, "ts": start_us + 2, "bp": "e"},
        {**named, "pid": "S", "args": {"name": "Spans"}},
    ]
    return {"traceEvents": events}


def events_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def test_perfetto_shows_trials_as_processes_from_time_0(made: RunFolder, trainlab: Verb) -> None:
    traced = [trial for trial in made.trials() if trial.watch == "operators"]
    for number, trial in enumerate(traced):
        content = json.dumps(trace(41, 1e9 * (number + 1))).encode()
        made.trial(trial.id).trace_file.write_bytes(gzip.compress(content))
    (steps,) = map(Path, trainlab("export", "r", "--to", "perfetto").stdout.split())
    events = events_of(steps)
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert set(names.values()) == {
        f"{trial.cell}, train: {process}" for trial in traced for process in ("python", "Spans")
    }
    calls = [event for event in events if event["ph"] == "X"]
    assert [(call["ts"], call["dur"]) for call in calls] == [(0.0, 3.0)] * len(traced)
    assert len({call["pid"] for call in calls}) == len(traced) == 2
    arrows = {event["pid"]: event["id"] for event in events if event["ph"] == "s"}
    assert len(set(arrows.values())) == len(traced)
    assert all(arrows[e["pid"]] == e["id"] for e in events if e["ph"] == "f")
    first = steps.read_bytes()
    trainlab("export", "r", "--to", "perfetto")
    assert steps.read_bytes() == first


def test_a_damaged_trace_is_named(made: RunFolder, trainlab: Verb) -> None:
    trial = next(trial for trial in made.trials() if trial.watch == "operators")
    made.trial(trial.id).trace_file.write_bytes(b"not gzip")
    told = trainlab("export", "r", "--to", "perfetto", code=2).stderr
    assert told.endswith("trace.json.gz: is no trace; copy the run folder again\n")
    assert not list((made.path / "export").iterdir())


WRONG = """
nope --to csv
nope: no such folder; name a run folder, as in runs/…
nope：没有这个文件夹
r --to perfeto
--to: got 'perfeto', must be one of csv, parquet, latex, mlflow, perfetto; did you mean perfetto?
必须是以下之一
r --to perfetto
r: has no trace of a profiled step; profile it and export that run: trainlab profile tiny
r：没有性能分析的轨迹
r --to csv --tracking-uri x
--tracking-uri: is for --to mlflow, but --to is csv; leave it out
--tracking-uri：用于 --to mlflow，而 --to 是 csv
r --to mlflow --out x
--out: is for files, but mlflow takes a server; give --tracking-uri
--out：用于文件，而 mlflow 需要服务器
"""
"""What is asked, what is told, and a part of that in Chinese."""


def test_what_cannot_be_exported_is_told_in_one_line(trainlab: Verb, tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "r", made_study())
    lines = WRONG.strip().splitlines()
    for line, english, chinese in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        assert trainlab("export", *line.split(), code=2).stderr == f"trainlab: {english}\n"
        told = trainlab("export", *line.split(), "--lang", "zh", code=2).stderr
        assert chinese in told
        assert told.count("\n") == 1
