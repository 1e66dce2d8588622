"""In a run folder that something has damaged, every damaged file is named and the rest is shown."""

import json
import shutil
from pathlib import Path

import pytest

from command import Verb
from fabricate import Fabricated, made_study
from trainlab.record.files import read_json, write_json
from trainlab.record.run_folder import RunFolder, verify
from trainlab.spec import CostSpec

CURVE = "trials/learn-lr=0.1-seed1/curve.jsonl"


@pytest.fixture
def damaged(trainlab: Verb, tmp_path: Path) -> Path:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=2, cost=CostSpec(processes=2))
    Fabricated(step_points=1).write(tmp_path / "r", study)
    trainlab("show", "r")
    return tmp_path / "r"


def test_cells_that_the_trials_name_must_be_in_the_study(trainlab: Verb, damaged: Path) -> None:
    path = damaged / "study.json"
    record = read_json(path)
    write_json(path, record | {"study": record["study"] | {"cells": []}})
    (line,) = trainlab("show", "r", code=2).stderr.splitlines()
    assert "r: no trial is sound: study.json: study.cells: has no lr=0." in line
    assert line.endswith("the file was changed by hand?")


def test_damaged_trials_are_named_and_left_out_by_every_verb(
    trainlab: Verb, damaged: Path, tmp_path: Path
) -> None:
    shutil.copytree(damaged, tmp_path / "whole")
    sealed = damaged / CURVE
    record = RunFolder(damaged).trial(sealed.parent.name)
    record.end(record.read())
    content = bytearray(sealed.read_bytes())
    content[content.index(b"0.9")] ^= 1  # 0.9 becomes 1.9: still a curve
    sealed.write_bytes(content)
    lost = damaged / "trials/learn-lr=0.2-seed2/trial.json"
    lost.write_bytes(lost.read_bytes()[:100])
    (machine,) = (damaged / "environments").iterdir()
    machine.write_text(machine.read_text().replace("Made-up", "Made_up"))

    shown = trainlab("show", "r").stdout
    for told in (
        f"Left out: {CURVE}: was changed or damaged after it was written",
        "Left out: trials/learn-lr=0.2-seed2/trial.json: is not JSON",
        *(f"Left out: environments/{machine.name}: was changed", "(2 damaged)", "lr=0.1"),
    ):
        assert told in shown
    assert "未计入：" in trainlab("show", "r", "--lang", "zh").stdout
    as_json = json.loads(trainlab("show", "r", "--json").stdout)
    assert [one["trial"] for one in as_json["damaged"]][-1] is None
    assert len(as_json["trials"]) + 2 == len(RunFolder(tmp_path / "whole").study().trials)
    assert "Left out: " in trainlab("compare", "r", "whole").stdout
    trainlab("report", "r", "--format", "md")
    report = (damaged / "report/report.md").read_text()
    assert "Left out: 2 of " in report
    assert "learn-lr=0.2-seed2 | trials/learn-lr=0.2-seed2/trial.json: is not JSON" in report

    told = trainlab("verify", "r", code=1).stdout.splitlines()
    files = {line.partition(": ")[0].removeprefix("r/") for line in told[:-1]}
    assert files == {f"environments/{machine.name}", CURVE, str(lost.relative_to(damaged))}
    assert "3 damaged" in told[-1]
    assert "0 damaged" in trainlab("verify", "whole").stdout


def test_a_machine_that_trials_name_and_that_is_gone_is_noticed(tmp_path: Path) -> None:
    folder = Fabricated().write(tmp_path / "r", made_study(seeds=1))
    (machine,) = folder.environments_folder.iterdir()
    assert folder.trials()[0].environment == machine.stem
    machine.unlink()
    (told,) = verify(folder).damaged
    assert str(machine) in told
