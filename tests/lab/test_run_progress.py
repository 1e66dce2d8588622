"""How far a run is: what is read of it at each look."""

from pathlib import Path

import pytest

from fabricate import Fabricated, made_study
from trainlab.lab.run_progress import RunProgress
from trainlab.record.run_folder import RecordFile


def test_a_look_reads_only_the_trials_whose_files_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Fabricated(state=lambda trial: "pending").write(tmp_path / "run", made_study(seeds=5))
    read, names = RecordFile.read, list[str]()

    def counted(file: RecordFile) -> object:
        names.append(file.path.parent.name)
        return read(file)

    monkeypatch.setattr(RecordFile, "read", counted)
    progress = RunProgress(run).look()
    assert names == list(progress.trials)
    first = next(iter(progress.trials))
    record = run.trial(first).read()
    run.trial(first).write(record.model_copy(update={"state": "done"}))
    names.clear()
    assert progress.look().counts() == {"done": 1, "pending": 4}
    assert names == [first]
