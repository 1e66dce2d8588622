"""Where a script's own statements spend the time, and what its containers keep, seen while it runs."""

from pathlib import Path

from trainlab.spec.script import ScriptSpec
from trainlab.watching.interventions import Search
from trainlab.watching.script_child import run_script
from trainlab.watching.tracer import Tracer
from trainlab.watching.watched_run import watched_record
from watched_runs import own_main

SCRIPT = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Notes:
    def __init__(self):
        self.kept = []

def measure():
    time.sleep(0.02)

class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.005)
        return super().forward(x)

def main():
    data = TensorDataset(torch.zeros(60, 1000), torch.zeros(60, 1))
    model = Net(1000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    notes, numbers = Notes(), []
    for x, y in DataLoader(data, 2):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        measure()
        notes.kept.append((loss, x))
        numbers.append(0.0)

main()
"""


def searched(tmp_path: Path, text: str) -> tuple[list[str], list[tuple[str, int]], dict[str, int]]:
    script = tmp_path / "train.py"
    script.write_text(text)
    tracer = Tracer()
    search = Search(script, tracer)
    tracer.on_step = search.step_ended
    try:
        with own_main():
            run_script(ScriptSpec(path=str(script)), ())
    finally:
        tracer.close()
    record = watched_record(tracer).model_copy(update=search.close())
    pure = [row.text for row in record.statements if set(row.samples) == {"other"}]
    return pure, [(row.name, row.tensor_bytes) for row in record.growing], record.samples


def test_the_statement_between_steps_and_the_container_that_grows_are_found(tmp_path: Path) -> None:
    pure, growing, samples = searched(tmp_path, SCRIPT)
    assert pure[0] == "measure()"
    assert growing[0][0] == "notes.kept"
    assert growing[0][1] >= 2 * 1000 * 4
    assert {name for name, _ in growing} == {"notes.kept", "numbers"}
    assert samples["other"] > sum(samples.values()) / 2


def test_what_is_slept_through_while_writing_is_logging(tmp_path: Path) -> None:
    slow = SCRIPT.replace("        measure()\n", "        print(torch.ones(1), time.sleep(0.02))\n")
    _, _, samples = searched(tmp_path, slow)
    assert samples["logging"] > sum(samples.values()) / 2
