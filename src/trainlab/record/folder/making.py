"""New run folders, and paths that are meant to be one."""

from datetime import datetime
from pathlib import Path

from trainlab.errors import RecordError
from trainlab.record.files import writing
from trainlab.record.folder.run import RunFolder
from trainlab.spec.base import did_you_mean

RUNS = Path("runs")
"""Where run folders are made unless told otherwise."""


def create_run(out: Path | None, name: str, now: datetime, base: Path | None = None) -> RunFolder:
    """A new run folder: `out`, or `runs/<name>-<time>`. Never one that another run has."""
    if out is not None:
        return _claim(out)
    stem = (base or RUNS) / f"{name}-{now.strftime('%Y-%m-%dT%H-%M-%S')}"
    path, count = stem, 1
    while True:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                count += 1
                path = stem.with_name(f"{stem.name}-{count}")
            else:
                return _claim(path)


def check_unused(path: Path) -> None:
    """RecordError where no run folder can be made at a path; writes nothing."""
    with writing(path):
        if _holds_unfinished(path):
            remedy = f"go on with it by `trainlab resume {path}`, or choose another --out"
            raise RecordError(f"{path}: holds a run that is not finished; {remedy}")
        if path.is_dir() and any(path.iterdir()):
            raise RecordError(f"{path}: is not empty; choose another --out, or remove it")
        above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not above.is_dir():
        raise RecordError(f"{path}: cannot be written: {above} is a file; choose another --out")


def _holds_unfinished(path: Path) -> bool:
    run = RunFolder(path)
    try:
        return run.study_file.is_file() and not all(trial.is_finished for trial in run.trials())
    except RecordError:
        return False


def _claim(path: Path) -> RunFolder:
    """Takes an empty folder; making `trials` fails for all but one of those who try at once."""
    folder = RunFolder(path)
    check_unused(path)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        try:
            folder.trials_folder.mkdir()
        except FileExistsError:
            raise RecordError(
                f"{path}: another run has just taken it; choose another --out"
            ) from None
    return folder


def check_run(path: Path) -> None:
    """RecordError where a path is no run folder; names one where that is near."""
    if RunFolder(path).study_file.is_file():
        return
    if not path.exists():
        names = {str(path.parent / p.name): p for p in _runs_in(path.parent)}
        near = did_you_mean(str(path), names)
        raise RecordError(f"{path}: no such folder{near or '; name a run folder, as in runs/…'}")
    if not path.is_dir():
        raise RecordError(f"{path}: is a file; name the run folder that it is in")
    around = [above for above in path.parents if RunFolder(above).study_file.is_file()]
    inside = around[:1] or _runs_in(path)
    if len(inside) == 1:
        meant = f"did you mean {inside[0]}?"
    elif inside:
        meant = f"it holds {len(inside)}; name one of them, as {inside[-1]}"
    else:
        meant = "name one that `trainlab run` has made, as in runs/…"
    raise RecordError(f"{path}: is no run folder: it has no study.json; {meant}")


def _runs_in(folder: Path) -> list[Path]:
    """Run folders that lie in a folder, by name."""
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
    return [path for path in inner if RunFolder(path).study_file.is_file()]
