"""The formats that a run can be exported to, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.results import csv_of, parquet_of
from trainlab.errors import SpecError
from trainlab.export.tables import tables_of
from trainlab.record.files import make_folder, replacing, writing
from trainlab.record.run_folder import RunFolder
from trainlab.spec.base import did_you_mean
from trainlab.words import check_language

FORMATS = ("csv", "parquet", "latex", "mlflow", "perfetto")


@dataclass(frozen=True)
class Exported:
    """What was written, and where."""

    paths: tuple[Path, ...] = ()
    """Files, for every format but mlflow."""
    experiment: str = ""
    """This and the next: the experiment in MLflow, and the tracking server it is on."""
    tracking_uri: str = ""
    num_new: int = 0
    """MLflow runs that this export has made."""
    num_there: int = 0
    """Trials whose MLflow runs were there already, and as the trial is."""
    num_left_out: int = 0
    """Trials that have not ended; a later export adds them."""


def export_run(
    folder: RunFolder,
    evidence: Evidence,
    to: str,
    out: Path | None = None,
    *,
    lang: str = "en",
    tracking_uri: str | None = None,
) -> Exported:
    """Writes a run in one of the formats; SpecError where there is no such format."""
    check_language(lang)
    if to not in FORMATS:
        near = did_you_mean(to, FORMATS)
        raise SpecError([f"--to: got {to!r}, must be one of {', '.join(FORMATS)}{near}"])
    if to == "mlflow":
        from trainlab.export.tracking import export_to_server

        if out is not None:
            raise SpecError(["--out: is for files, but mlflow takes a server; give --tracking-uri"])
        return Exported(**vars(export_to_server(folder, evidence, lang, tracking_uri)))
    if tracking_uri is not None:
        raise SpecError([f"--tracking-uri: is for --to mlflow, but --to is {to}; leave it out"])
    if to == "perfetto":
        from trainlab.export.perfetto import check_traces, write_traces

        check_traces(folder, evidence)
        return Exported(write_traces(folder, evidence, _made(folder, out)))
    return Exported(_written(_made(folder, out), _files(evidence, folder, to, lang)))


def _files(evidence: Evidence, folder: RunFolder, to: str, lang: str) -> Mapping[str, bytes]:
    """The files of a format by name."""
    if to == "latex":
        from trainlab.export.latex import latex_files

        return latex_files(evidence, lang)
    as_bytes = csv_of if to == "csv" else parquet_of
    tables = tables_of(evidence, folder)
    return {f"{name}.{to}": as_bytes(table) for name, table in tables.items()}


def _made(folder: RunFolder, out: Path | None) -> Path:
    """The folder to write to; the run's own must not be a link: somebody else may have made the run."""
    if out is None:
        make_folder(folder.export_folder)
        return folder.export_folder
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    return out


def _written(place: Path, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    for name, content in files.items():
        with replacing(place / name) as part:
            part.write_bytes(content)
    return tuple(place / name for name in files)
