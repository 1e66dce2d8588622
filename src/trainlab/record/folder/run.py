"""The folder of one run."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from trainlab.errors import RecordError
from trainlab.record.environment import Environment
from trainlab.record.files import make_folder, replacing, sync_all, write_json, writing
from trainlab.record.folder.records import RecordFile, read_record
from trainlab.record.folder.trial import TrialFolder
from trainlab.record.scripts.diagnosis import DiagnosisRecord
from trainlab.record.study import StudyRecord
from trainlab.record.trial import TrialRecord


class RunFolder:
    """The records of one execution of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study_file = path / "study.json"
        self.environments_folder = path / "environments"
        self.events_folder = path / "events"
        self.drivers_folder = path / "drivers"
        self.logs_folder = path / "logs"
        self.trials_folder = path / "trials"
        self.shares_folder = path / "shares"
        self.results_csv = path / "results.csv"
        self.results_parquet = path / "results.parquet"
        self.epochs_csv = path / "epochs.csv"
        self.probes_csv = path / "probes.csv"
        self.report_folder = path / "report"
        self.export_folder = path / "export"
        self.diagnosis = RecordFile(path / "diagnosis.json", DiagnosisRecord)

    def trial(self, trial_id: str) -> TrialFolder:
        """The folder of one trial."""
        return TrialFolder(self.trials_folder / trial_id)

    def log_file(self, trial_id: str) -> Path:
        """What the process that ran a trial printed, and others with it whose first it was."""
        return self.logs_folder / f"{trial_id}.log"

    def write_trials(self, records: Iterable[TrialRecord]) -> None:
        """Writes trial.json of many trials that are planned."""
        written = []
        for record in records:
            files = self.trial(record.id)
            files.write(record, synced=False)
            written.append(files.trial_file)
        with writing(self.trials_folder):
            sync_all(written)

    def write_study(self, record: StudyRecord) -> None:
        """Writes study.json."""
        write_json(self.study_file, record.model_dump(mode="json"))

    def study(self) -> StudyRecord:
        """Reads study.json."""
        if not self.study_file.exists():
            raise RecordError(f"{self.study_file}: no such file; is this a run folder?")
        return read_record(self.study_file, StudyRecord)

    def trials(self) -> list[TrialRecord]:
        """All trials, in the order planned."""
        return [self.trial(trial_id).read() for trial_id in self.study().trials]

    def write_environment(self, record: Environment) -> str:
        """Records a machine, once however often it is written; returns the name trials refer to it by."""
        content = record.model_dump(mode="json")
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
        name = f"{re.sub(r'[^A-Za-z0-9.-]', '_', record.host) or 'host'}-{digest}"
        make_folder(self.environments_folder)
        write_json(self.environments_folder / f"{name}.json", content)
        return name

    def environment_files(self) -> dict[str, RecordFile[Environment]]:
        """The machines of the run by name. In format 1 there was one, without a name."""
        files = sorted(self.environments_folder.glob("*.json"))
        files = files or list(self.path.glob("environment.json"))
        return {path.stem: RecordFile(path, Environment) for path in files}

    def environments(self) -> dict[str, Environment]:
        """The machines of the run, read."""
        return {name: file.read() for name, file in self.environment_files().items()}

    def check_links(self) -> None:
        """RecordError where a folder inside the run is a link: what is written there would lie outside.
        Where a script runs there may be links; nothing of ours is written there."""
        for parent, folders, _ in os.walk(self.path):
            for name in folders:
                if (place := Path(parent, name)).is_symlink():
                    rule = "is a link, and may lead anywhere"
                    raise RecordError(f"{place}: {rule}; put a folder in its place")
            if (trial := TrialFolder(Path(parent))).trial_file.exists():
                folders[:] = [name for name in folders if name != trial.work_folder.name]

    def file_names(self) -> frozenset[str]:
        """The names of all files and folders there are: the run's own, and those of any trial."""
        own = {path.name for path in self.path.iterdir()}
        trials = (folder for folder in self.trials_folder.iterdir() if folder.is_dir())
        return frozenset(own | {path.name for folder in trials for path in folder.iterdir()})

    def write_table(self, path: Path, content: bytes) -> None:
        """Writes one of the run's tables whole."""
        with replacing(path) as part:
            part.write_bytes(content)
