"""The preflight in a process of its own: whatever the user's code does there, one line tells of it."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from asking import study_of
from trainlab.errors import TrainlabError
from trainlab.execute.launch import Launcher
from trainlab.execute.preflight import CheckingProcess
from trainlab.spec import Study
from trainlab.spec.probe import probe_of
from trainlab.train.loader import Loader
from trainlab.words.error_lines import error_line
from trainlab.workloads.user_code import mistake_in

FAULTS = {
    "crash in the model": (
        "import ctypes\ndef model(hidden=8):\n    print('so far')\n    ctypes.string_at(0)\n",
        "own_work.py:18: building the model failed before any trial: its process was ended by SIGSEGV",
    ),
    "end in the data": (
        "import os\ndef data(choice):\n    print('so far')\n    os._exit(3)\n",
        ":tiny: loading the data failed before any trial: its process ended with code 3",
    ),
    "crash in the file": (
        "import ctypes\nprint('so far')\nctypes.string_at(0)\n",
        "own_work.py:17: importing the file failed before any trial: its process was ended by SIGSEGV",
    ),
    "hang in the model": (
        "import time\ndef model(hidden=8):\n    print('so far')\n    time.sleep(600)\n",
        "own_work.py:18: building the model failed before any trial: took longer than 8 s; "
        "give it more with --trial-timeout, or see where it hangs",
    ),
    "crash in the first step": (
        "import ctypes\nclass Net(nn.Linear):\n    def forward(self, x):\n"
        "        print('so far')\n        ctypes.string_at(0)\n"
        "def model(hidden=8):\n    return Net(8, 2)\n",
        "own_work.py:19: making the first step failed before any trial: "
        "its process was ended by SIGSEGV",
    ),
    "interrupt in the model": (
        "def model(hidden=8):\n    print('so far')\n    raise KeyboardInterrupt('mine')\n",
        "own_work.py:17: model raised KeyboardInterrupt: mine",
    ),
    "error in the model": (
        "def model(hidden=8):\n    print('so far')\n    raise ValueError('mine')\n",
        "model(): own_work.py:17: ValueError: mine",
    ),
}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """One server for all tests of this file."""
    with closing(Launcher()) as made:
        yield made


@pytest.fixture
def checks(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckingProcess]:
    with closing(CheckingProcess(launcher, {}, limit_s=60.0)) as process:
        yield process


@pytest.fixture
def study(tiny_file: Path) -> Study:
    settings = {"device": "cpu", "threads": 1}
    probes = (probe_of("*:activation:mean"),)
    return study_of(f"{tiny_file}:tiny", settings, probes=probes)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_users_code_is_one_line_and_what_it_printed_is_shown(
    fault: str,
    checks: CheckingProcess,
    study: Study,
    tiny_file: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, told = FAULTS[fault]
    head, _, tail = tiny_file.read_text().partition("tiny = Workload")
    tiny_file.write_text(f"{head}{code}\ntiny = Workload{tail}")
    if "hang" in fault:
        checks._limit_s = 8.0
    with pytest.raises(TrainlabError) as raised:
        _ = checks.facts(study.workload), checks.preflight(study, each_device=False)
    line = str(raised.value)
    assert line.endswith(told)
    assert "\n" not in line
    assert capfd.readouterr().err.splitlines()[-1] == "so far"
    mistake = mistake_in(raised.value)
    assert mistake is not None
    if mistake.line:
        assert f'own_work.py", line {mistake.line.partition(":")[2]}, in' in mistake.trace
    if "process" in told:
        assert error_line(line, "zh") != line


@pytest.mark.slow
def test_what_is_found_is_what_this_process_would_find(
    checks: CheckingProcess, study: Study, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_file.write_text(
        tiny_file.read_text() + "import os, numpy\nos.environ['SET_BY_FILE'] = '7'\n"
        "tiny.defaults['lr'] = numpy.float32(0.5)\n"
    )
    monkeypatch.setenv("SET_BY_FILE", "6")
    own = Loader().workload(study.workload)
    monkeypatch.setenv("SET_BY_FILE", "6")
    assert checks.facts(study.workload) == own.facts
    # Fresh processes are started with what the file has set, as it would have been before torch.
    assert os.environ["SET_BY_FILE"] == "7"
    devices, code = checks.preflight(study, each_device=False)
    assert devices[0] == "cpu"
    assert code == own.code
