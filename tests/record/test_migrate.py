"""Run folders that older versions wrote are still shown and reported."""

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import data_of
from trainlab.cli.run_summary import evidence_json
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import FORMAT, migrated
from trainlab.report.contents import report_of
from trainlab.report.markdown import markdown_of

OLD = Path(__file__).parent
RUNS = sorted((path.parent.name, path.stem) for path in OLD.glob("format-*/*.zip"))


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    version, name = request.param
    with zipfile.ZipFile(OLD / version / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    return RunFolder(tmp_path / name)


def test_there_are_runs_of_every_older_format() -> None:
    assert {version for version, _ in RUNS} == {f"format-{n}" for n in range(1, FORMAT)}


@pytest.mark.parametrize("unpacked", RUNS, indirect=True, ids="/".join)
def test_an_old_run_is_read_and_reported_in_every_language(unpacked: RunFolder) -> None:
    evidence = gather(unpacked)
    assert len(evidence.trials) == len(evidence_json(evidence)["trials"]) > 0
    if unpacked.path.name == "trouble":
        states = Counter(trial.state for trial in evidence.trials)
        assert states == {"failed": 4, "diverged": 2, "done": 2}
    for lang in ("en", "zh"):
        text = markdown_of(report_of(data_of(evidence), lang))
        assert evidence.name in text
        assert evidence.environment.cpu in text


@pytest.mark.parametrize("unpacked", [("format-1", "study")], indirect=True)
def test_what_an_old_study_showed_is_what_it_shows_now(unpacked: RunFolder) -> None:
    evidence = gather(unpacked)
    assert (len(evidence.learned), len(evidence.measured), len(evidence.probed)) == (4, 10, 12)
    assert {trial.state for trial in evidence.trials} == {"done"}
    assert {trial.attempt for trial in evidence.trials} == {1}
    cell = "lr=0.001,batch_size=32"
    raw = json.loads(unpacked.trial(f"learn-{cell}-seed1").trial_file.read_text())
    assert evidence.values(cell, "test/accuracy")[1] == raw["final"]["test/accuracy"]


@pytest.mark.parametrize("unpacked", [("format-1", "single")], indirect=True)
def test_a_setting_that_is_no_more_does_not_hide_an_old_run(unpacked: RunFolder) -> None:
    record = json.loads(unpacked.study_file.read_text())
    record["study"]["settings"]["gone_since"] = 3
    record["study"]["left_out_since"] = True
    unpacked.study_file.write_text(json.dumps(record))
    assert gather(unpacked).study.settings.epochs == 2


def test_notes_in_english_become_notes_with_a_text() -> None:
    value = migrated("trial.json", {"format": 1, "state": "done", "notes": ["it broke"]})
    assert value["notes"] == [{"code": "text", "values": {"text": "it broke"}}]
    assert (value["attempt"], value["format"]) == (1, FORMAT)
    assert migrated("cost.json", {"format": 1, "x": 2}) == {"format": FORMAT, "x": 2}
