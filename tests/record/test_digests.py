"""Digests of raw records: those that sha256sum gives, and others when a record changes."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from fabricate import Fabricated, made_study
from trainlab.record.run_folder import COMMAND, RunFolder, run_digests


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return Fabricated().write(tmp_path / "run", made_study(vary={"lr": [0.1, 0.01]}))


def test_the_command_of_the_report_gives_the_same_digest(run: RunFolder) -> None:
    trial = run.trial(run.study().trials[0])
    trial.checkpoint_folder.mkdir()
    (trial.checkpoint_folder / "state.json").write_text("{}")
    (run.path / "report").mkdir()
    (run.path / "report" / "x.json").write_text("{}")
    if shutil.which("sha256sum") is None:
        pytest.skip("needs sha256sum")
    script = COMMAND.replace("RUN", f"'{run.path}'")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == run_digests(run).all


def test_every_trial_and_machine_has_a_digest(run: RunFolder) -> None:
    digests = run_digests(run)
    machines = {f"environments/{path.name}" for path in run.environments_folder.iterdir()}
    trials = {f"trials/{trial}" for trial in run.study().trials}
    assert set(digests.parts) == {"study.json", *machines, *trials}
    assert digests.parts["study.json"] == hashlib.sha256(run.study_file.read_bytes()).hexdigest()
    assert len(set(digests.parts.values())) == len(digests.parts)
    # One changed digit changes that of its trial alone.
    changed = run.study().trials[1]
    file = run.trial(changed).curve_file
    file.write_text(file.read_text().replace("1", "2", 1))
    after = run_digests(run)
    assert digests.all != after.all
    differing = [part for part in digests.parts if digests.parts[part] != after.parts[part]]
    assert differing == [f"trials/{changed}"]
