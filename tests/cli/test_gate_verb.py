"""trainlab gate: exit codes, what is printed for people and for programs, and the same from Python."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainlab as package
from command import Verb
from fabricate import ENVIRONMENT, Fabricated, made_study
from torchless import Torchless
from trainlab.spec import CostSpec

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run folders of one study, whose steps take so many milliseconds and whose accuracy is as told."""

    def made(name: str, times: float = 1.0, accuracy: float = 0.9, **asked: Any) -> Path:
        draw = np.random.default_rng(len(name))
        host = asked.pop("host", "ci")
        told = Fabricated(
            step_ms=lambda t, p: times * math.exp(0.01 * draw.standard_normal()),
            final=lambda t: {"test/accuracy": accuracy + 0.001 * (t.seed % 2)},
            environment=ENVIRONMENT.model_copy(update={"host": host}),
        )
        study = made_study(**{"name": name, "cost": CostSpec(processes=6), "seeds": 4, **asked})
        return told.write(tmp_path / name, study).path

    return made


def test_the_exit_code_is_the_verdict(trainlab: Verb, make: Make) -> None:
    make("old")
    for name, times, code, told in (
        ("same", 1.0, 0, "Not slower: a training step takes "),
        ("slow", 1.2, 1, "Slower: a training step takes 1.2"),
        ("between", 1.05, 3, "Cannot tell: a training step takes 1.0"),
    ):
        make(name, times)
        done = trainlab("gate", name, "--against", "old", "--slower", "5%", code=code)
        assert done.stdout.startswith(told)
        assert trainlab("gate", name, "--against", "old", "--quiet", code=code).stdout == ""
        quiet = trainlab("gate", name, "--against", "old", "--slower", "0.05", "-q", code=code)
        assert quiet.stdout == quiet.stderr == ""
    assert "processes in each run would tell" in done.stdout
    assert package.gate("slow", against="old", slower=0.05).exit_code == 1
    assert package.gate(package.open_run("same"), against=Path("old")).verdict == "pass"


def test_metrics_alone_or_beside_the_time(trainlab: Verb, make: Make) -> None:
    make("old")
    make("worse", accuracy=0.87)
    words = ("gate", "worse", "--against", "old", "--worse", "test/accuracy=0.01")
    done = trainlab(*words, code=1)
    assert done.stdout.startswith("Worse: test accuracy is 87.05%, -3.00 points from the baseline")
    assert "training step" not in done.stdout
    both = trainlab(*words, "--slower", "5%", code=1).stdout
    assert both.startswith("Fail: of 2 comparisons with the baseline, 1 ")
    assert "Not slower" in both
    trainlab("gate", "worse", "--against", "old", "--worse", "test/accuracy=5%")
    shown = trainlab(*words, "--lang", "zh", code=1).stdout
    assert shown.startswith("变差：测试准确率为 87.05%，与基线相差 -3.00 个百分点［")


def test_for_programs_and_for_a_comment(trainlab: Verb, make: Make, tmp_path: Path) -> None:
    make("old", vary={"batch_size": (1, 16)})
    make("slow", 1.2, vary={"batch_size": (1, 16, 32)})
    words = ("gate", "slow", "--against", "old")
    told = json.loads(trainlab(*words, "--json", "--markdown", "note.md", code=1).stdout)
    assert (told["verdict"], told["exit_code"], told["mode"]) == ("fail", 1, "train")
    assert [one["cell"] for one in told["checks"]] == ["batch_size=1", "batch_size=16"]
    assert told["checks"][0]["interval"]["low"] > 1.05
    assert told["interval"]["low"] < told["ratio"] < told["interval"]["high"]
    assert told["only_run"] == ["batch_size=32"]
    note = (tmp_path / "note.md").read_text()
    assert re.fullmatch(r"\*\*Fail: of 2 .*\*\* `batch_size=1`: Slower: .*\n", note)
    assert trainlab(*words, "--markdown", "-", code=1).stdout == note
    shown = trainlab(*words, code=1).stdout
    assert "Only in slow: batch_size=32." in shown


@pytest.mark.slow
def test_of_two_real_profiles_the_exit_code_and_what_is_printed_agree(
    trainlab: Verb, tiny_file: Path
) -> None:
    """Whatever it is: how fast the machine is does not matter."""
    asked = "--device cpu --threads 1 --on inline --processes 3 --mode train --cost-budget 0.1s"
    asked += " --active-steps 1 --trace-mb 0"
    for name in ("old", "new"):
        trainlab("profile", f"{tiny_file}:tiny", *asked.split(), "--out", name)
    found = package.gate("new", against="old", slower=0.05)
    code = found.exit_code
    verdict = {0: "pass", 1: "fail", 3: "cannot tell"}[code]
    told = {0: "Not slower: ", 1: "Slower: ", 3: "Cannot tell: "}[code]
    assert (found.verdict, found.checks[0].num_run) == (verdict, 3)
    words = ("gate", "new", "--against", "old", "--slower", "5%")
    assert trainlab(*words, code=code).stdout.startswith(told)
    assert json.loads(trainlab(*words, "--json", code=code).stdout)["verdict"] == verdict


REFUSED = [
    ("gate new --against new", "new: is compared with itself; name two run folders"),
    ("gate new", "gate: --against BASELINE: is required; see `trainlab gate --help`"),
    ("gate new --against 123", "123: no such folder; name a run folder"),
    ("gate new --against old --slower x", "--slower: got 'x', must be a share, as 5% or 0.05"),
    ("gate new --against old --slower 0", "--slower: got 0%, must be above 0% and below 100%, a"),
    ("gate new --against old --worse test/accuracy", "--worse: got 'test/accuracy', must be MET"),
    ("gate new --against old --worse test/acuracy=0.01", "--worse: got 'test/acuracy', must be "),
    ("gate new --against old --worse test/accuracy=-1", "must be above 0, as test/accuracy=0.01"),
    ("gate new --against old --mode eval", "--mode: got 'eval', must be one of train, inference"),
    ("gate new --against old --mode inference", "has no timed step in mode inference; measure i"),
    ("gate new --against old --json --markdown -", "--markdown: got '-', but --json is printed "),
    ("gate new --against elsewhere", "new: was measured on host ci, the baseline on laptop; tim"),
    ("gate new --against other", "new: is about tiny, the baseline about other; compare runs of"),
    ("gate new --against sizes", "new: has no setting in common with the baseline: base against"),
    ("gate new --against large", "new: base: batch_size is 64, in the baseline 96; run both wit"),
    ("gate new --against learned", "learned: has no timed step; measure it with `trainlab profi"),
]


def test_what_is_refused_is_told_in_a_line_in_both_languages(
    torchless: Torchless, make: Make, tmp_path: Path
) -> None:
    make("old")
    make("new")
    make("elsewhere", host="laptop")
    make("other", workload="other")
    make("sizes", vary={"batch_size": (1, 16)})
    make("large", settings={"batch_size": 96})
    make("learned", cost=None)
    for line, told in REFUSED:
        torchless.refusal(line.split(), told, tmp_path)
    allowed = torchless.ask(["gate", "new", "--against", "elsewhere", "--any-host"], tmp_path)
    assert (allowed.code, allowed.imported_torch) == (0, False), allowed
    blocked = ["gate", "new", "--against", "old", "--markdown", "no/such/place.md"]
    told = "--markdown no/such/place.md: cannot be written: No such file"
    torchless.refusal(blocked, told, tmp_path)
