"""Study files and run folders that are wrong: one line that names the file, the rule and the remedy."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricate import Fabricated, made_study
from torchless import Torchless
from trainlab.record.files import read_json, write_json

BASE = 'workload = "fashion-mlp"\n'

STUDIES = [
    ("workload = \n", "s.toml: is not TOML: Invalid value (at line 1"),
    ("workload = 3", "s.toml: workload: got 3, must be a text"),
    ('workload = "fashion-mpl"', "s.toml: workload 'fashion-mpl' is not known; did you mean"),
    (f"{BASE}batchsize = 3", "s.toml: batchsize: is out of place; write it as batch_size under [s"),
    (f"{BASE}processes = 3", "s.toml: processes: is out of place; write it under [settings] or "),
    (f'{BASE}name = "a/b"', "s.toml: name: got 'a/b', must begin with a letter or digit"),
    (f"{BASE}seeds = -2", "s.toml: seeds: got -2, must be a number of seeds or a list"),
    (f"{BASE}seeds = []", "s.toml: seeds: got none, must be at least one"),
    (f"{BASE}[settings]\nlearning_rate = 1", "learning_rate: unknown setting; did you mean lr?"),
    (f"{BASE}[settings]\nlr = [0.1, 0.2]", "s.toml: lr: got [0.1, 0.2], must be a number"),
    (f"{BASE}[settings]\nepochs = true", "s.toml: epochs: got true, must be a number"),
    (f"{BASE}[vary]\nlr = [[0.1]]", "s.toml: vary.lr[0]: got [0.1], must be a number, a text"),
    (f"{BASE}[[cells]]\nlr = 1\n[[cells]]\nlr = 1", "lr=1: is the same as lr=1; leave one out"),
    (f"{BASE}learn = false", "s.toml: learn: got false without a cost: there is nothing to do; "),
    (f"{BASE}learn = false\nsave_model = true\n[cost]", "s.toml: save_model: got true, but noth"),
    (f'{BASE}learn = false\n[cost]\nweights = "trained"', "s.toml: cost.weights: got trained, but"),
    (f"{BASE}[cost]\nproceses = 3", "s.toml: cost.proceses: unknown setting; did you mean proce"),
    (f"{BASE}[cost]\nprocesses = 3\nmax_processes = 1", "s.toml: cost.max_processes: got 1, mus"),
    (f'{BASE}[targets]\n"test/acc" = 0.9', "it has train/loss, train/accuracy, test/loss, test/"),
    (f'{BASE}[margins]\n"test/accuracy" = -1', "s.toml: margins.test/accuracy: got -1, must be "),
    (f'{BASE}[margins]\n"train/sample_us" = 0.1', "margins.train/sample_us: is not measured; ad"),
    (f'{BASE}probes = "relu:grad:norm"', "s.toml: probes: got 'relu:grad:norm', must be a list"),
]


def test_a_wrong_study_file_is_one_line_without_torch(torchless: Torchless, tmp_path: Path) -> None:
    for text, told in STUDIES:
        (tmp_path / "s.toml").write_text(text)
        torchless.refusal(["run", "s.toml"], told, tmp_path)
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe")
    torchless.refusal(["run", "s.toml"], "s.toml: is not TOML: ", tmp_path)
    (tmp_path / "folder.toml").mkdir()
    torchless.refusal(["run", "folder.toml"], "folder.toml: cannot be read: ", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"s.toml", "folder.toml"}


def changed(file: str, **changes: Any) -> Callable[[Path], object]:
    """Changes fields of a JSON file of a run."""

    def change(run: Path) -> None:
        path = run / file
        write_json(path, {**read_json(path), **changes})

    return change


TRIAL = "trials/learn-seed1/trial.json"
CURVE = "trials/learn-seed1/curve.jsonl"

DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda run: (run / "study.json").write_text("{"), "study.json: is not JSON: "),
    (lambda run: (run / "study.json").unlink(), "run: is no run folder: it has no study.json"),
    (changed("study.json", format=999), "study.json: format 999, this trainlab reads up to"),
    (changed("study.json", study={}), "study.json: study: workload: Field required"),
    (lambda run: shutil.rmtree(run / "trials"), f"{TRIAL}: is missing"),
    (lambda run: (run / TRIAL).write_text("null"), f"{TRIAL}: holds a NoneType, must be an object"),
    (changed(TRIAL, state="odd"), f"{TRIAL}: state: Input should be 'pending', 'running', 'done'"),
    (lambda run: (run / CURVE).write_text("x\n"), f"{CURVE}: line 1: is not JSON"),
    (lambda run: (run / CURVE).write_text('{"epoch": 1}\n'), f"{CURVE}: line 1: kind: Field req"),
]


def test_a_run_folder_of_which_nothing_is_sound_is_one_line(
    torchless: Torchless, tmp_path: Path
) -> None:
    Fabricated(step_points=1).write(tmp_path / "whole", made_study(seeds=1))
    for damage, told in DAMAGES:
        shutil.copytree(tmp_path / "whole", tmp_path / "run")
        damage(tmp_path / "run")
        for line in ("report run", "show run", "compare whole run"):
            torchless.refusal(line.split(), told, tmp_path)
        shutil.rmtree(tmp_path / "run")


def test_a_folder_near_a_run_folder_is_told_which_one(torchless: Torchless, tmp_path: Path) -> None:
    for name in ("mnist-1", "mnist-2"):
        Fabricated().write(tmp_path / "runs" / name, made_study())
    for words, told in (
        ("runs", "runs: is no run folder: it has no study.json; it holds 2; name one of them"),
        ("runs/mnist-1/trials", "; did you mean runs/mnist-1?"),
        ("runs/mnits-2", "runs/mnits-2: no such folder; did you mean runs/mnist-2?"),
        ("runs/mnist-1/study.json", "study.json: is a file; name the run folder that it is in"),
    ):
        for verb in ("show", "report"):
            torchless.refusal([verb, words], told, tmp_path)
