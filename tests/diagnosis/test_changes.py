"""Each change, made to a small script in this process, and undone."""

import builtins
import gc
import io
import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from children import children
from trainlab.errors import SpecError
from trainlab.spec.script import ScriptSpec
from trainlab.watching.interventions import ChangeError, apply_change, keep_last
from trainlab.watching.script_child import run_script
from watched_runs import own_main

SCRIPT = """
import builtins, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
seen = builtins._seen
data = TensorDataset(torch.arange(12.0).reshape(12, 1), torch.zeros(12, 1))
loader = DataLoader(data, 4, shuffle=True)
tests = DataLoader(data, 3)
model = nn.Linear(1, 1)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
seen["fused"] = optimizer.defaults["fused"]
seen["workers"] = loader.num_workers, tests.num_workers
seen["threads"] = torch.get_num_threads()
batches, calls, history = [], [], []
with torch.autograd.detect_anomaly(check_nan=False):
    seen["anomalies"] = torch.is_anomaly_enabled()

def track(value):
    calls.append(value)

for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    batches.append(x.flatten().tolist())
    history.append((loss, x))
    track(
        loss.item()
    )
    builtins._step_ended()
with torch.no_grad():
    seen["tests"] = sum(1 for _ in tests)
torch.save({"a": 1}, "model.pt")
with open("log.txt", "w") as file:
    file.write("done")
seen |= {"batches": batches, "calls": len(calls), "history": len(history)}
torch.set_num_threads(1)
seen["threads after"] = torch.get_num_threads()
"""
PATCHED = (
    (builtins, "open"),
    (builtins, "print"),
    (io, "open"),
    (os, "fsync"),
    (torch, "save"),
    (torch, "set_num_threads"),
    (torch, "set_anomaly_enabled"),
    (DataLoader, "__init__"),
    (_BaseDataLoaderIter, "__next__"),
    (torch.optim.AdamW, "__init__"),
)

Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)

    def run_changed(text: str) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        before = [getattr(owner, name) for owner, name in PATCHED]
        threads = torch.get_num_threads()
        change = apply_change(text, script)
        monkeypatch.setattr(builtins, "_seen", seen, raising=False)
        monkeypatch.setattr(builtins, "_step_ended", change.on_step, raising=False)
        try:
            run_script(ScriptSpec(path=str(script)), (), change.code)
        finally:
            change.close()
            torch.set_num_threads(threads)
        assert [getattr(owner, name) for owner, name in PATCHED] == before
        change.check_used()
        return seen

    with own_main():
        yield run_changed
    gc.collect()  # workers of its loaders end with the script's module
    assert not [child for child in children() if child.name() == "pt_data_worker"]


def test_each_change_does_what_it_says_and_nothing_else(run: Run) -> None:
    seen = run("")
    assert sorted(chain(*seen["batches"])) == [float(n) for n in range(12)]
    assert (seen["tests"], seen["calls"], seen["history"]) == (4, 3, 3)
    assert (seen["fused"], seen["workers"], seen["threads after"]) == (None, (0, 0), 1)
    assert Path("log.txt").read_text() == "done"
    for name in ("model.pt", "log.txt"):
        Path(name).unlink()
    run("no_logging")
    assert not Path("model.pt").exists()
    assert not Path("log.txt").exists()
    seen = run("same_batch")
    assert [batch == seen["batches"][0] for batch in seen["batches"]] == [True] * 3
    assert seen["tests"] == 4
    seen = run("evaluation=1")
    assert (seen["tests"], len(seen["batches"])) == (1, 3)
    assert run("fused")["fused"] is True
    assert (run("")["anomalies"], run("no_anomaly_checks")["anomalies"]) == (True, False)
    seen = run("threads=3")
    assert (seen["threads"], seen["threads after"]) == (3, 3)
    line = SCRIPT.splitlines().index("    track(") + 1
    assert run(f"without={line}")["calls"] == 1
    seen = run("drop=history")
    assert (seen["history"], len(seen["batches"])) == (1, 3)


@pytest.mark.slow
def test_the_loader_that_shuffles_gets_workers(run: Run) -> None:
    assert run("workers=1")["workers"] == (1, 0)


LOCAL = """
def doubled(number):
    value, rest = divmod(2 * number, 100)
    return value, rest
assert [doubled(number) for number in range(1, 4)] == [(0, 2)] * 3
"""


def test_a_statement_runs_once_in_each_run_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOCAL)
    change = apply_change("without=3", script)
    with own_main():
        for _ in range(2):
            run_script(ScriptSpec(path=str(script)), (), change.code)
    change.close()
    assert change.num_uses == 6


def test_what_cannot_be_changed_is_refused_in_a_line(run: Run) -> None:
    line = SCRIPT.splitlines().index("        loss.item()") + 1
    for text, told in (
        (f"without={line}", f"line {line} begins no statement"),
        ("drop=nothing_of_this_name", "drop: the script does nothing that it would change"),
        ("threads=0", "must be a whole number from 1 on"),
        ("threads=many", "must be a whole number from 1 on"),
    ):
        with pytest.raises(ChangeError, match=told):
            run(text)
    with pytest.raises(SpecError, match="must be one of same_batch"):
        run("faster")


def test_all_but_the_last_is_taken_out() -> None:
    pairs: list[tuple[Any, Any]] = [([1, 2, 3], [3]), ({"a": 1, "b": 2}, {"b": 2}), ([], [])]
    for container, left in pairs:
        keep_last(container)
        assert container == left
