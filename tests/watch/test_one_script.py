"""`trainlab watch` of one run: what the script prints is passed on, and what is seen of it told beside."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from terminal import Terminal
from trainlab.record.run_folder import RunFolder

TRAINS = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

class Slow(TensorDataset):
    def __getitem__(self, place):
        time.sleep(0.005)
        return super().__getitem__(place)

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(Slow(torch.randn({samples}, 4)), batch_size=8, shuffle=True)
print("training", sys.stdout.isatty(), end="", flush=True)
for step, (batch,) in enumerate(loader):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.item()
    if step % 10 == 0:
        print("", step, end="", flush=True)
sys.exit({code})
"""


def test_standard_output_is_the_scripts_alone_and_the_verdict_comes_while_it_trains(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(TRAINS.format(samples=960, code=3))
    words = ["-m", "trainlab", "watch", "train.py", "--out", "r", "--no-tensorboard"]
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "training False" + "".join(f" {step}" for step in range(0, 120, 10))
    first, *lines = done.stderr.splitlines()
    assert first == "trainlab: train.py runs; its records are in r"
    told = [line.removeprefix("trainlab: ") for line in lines if line.startswith("trainlab: ")]
    assert told[0].startswith("So far, ")
    assert "of which data" in told[0]
    assert told[1].startswith("Waiting for data takes ")
    assert told[2].startswith("train.py:21 reads numbers from tensors in each step")
    assert " The script failed" in done.stderr
    (trial,) = (run := RunFolder(tmp_path / "r")).trials()
    assert run.trial(trial.id).output_file.read_text() == done.stdout


@pytest.mark.slow
def test_a_terminal_is_the_scripts_with_its_width_its_questions_and_a_record(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        "import os\n"
        "assert all(os.isatty(one) for one in range(3))\n"
        "print('\\033[31mred\\033[0m', os.get_terminal_size().columns)\n"
        "print('hello', input('who? '))\n"
    )
    words = ["-m", "trainlab", "watch", "train.py", "--out", "r", "--no-tensorboard"]
    with closing(Terminal(tmp_path, sys.executable, *words, columns=61)) as terminal:
        terminal.until("who? ")
        terminal.type("Ada\r")
        assert terminal.end() == 0
    assert "\033[31mred\033[0m 61\r\n" in terminal.shown
    assert "hello Ada\r\n" in terminal.shown
    output = (tmp_path / "r" / "trials" / "learn-seed1" / "output.txt").read_text()
    assert output.startswith("\033[31mred\033[0m 61\n")
    assert output.endswith("hello Ada\n")


@pytest.mark.slow
def test_ctrl_c_on_the_terminal_is_the_scripts_and_its_run_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS.format(samples=100_000, code=0))
    words = ["-m", "trainlab", "watch", "train.py", "--out", "r", "--no-tensorboard"]
    with closing(Terminal(tmp_path, sys.executable, *words)) as terminal:
        terminal.until("training True 0 10")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert terminal.has_echo()
    assert terminal.shown.count("KeyboardInterrupt") == 1
    assert "The script was interrupted after " in terminal.shown
    (trial,) = RunFolder(tmp_path / "r").trials()
    assert (trial.state, trial.error) == ("interrupted", None)


@pytest.mark.slow
def test_a_program_that_asks_for_json_or_silence_gets_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint('mine')\nprint('too', file=sys.stderr)\n")

    def printed(*words: str) -> tuple[str, str]:
        command = [sys.executable, "-m", "trainlab", "watch", *words, "train.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert printed("--quiet") == ("mine\n", "too\n")
    out, err = printed("--json")
    assert out.startswith("{")
    assert err.splitlines()[1:3] == ["mine", "too"]
