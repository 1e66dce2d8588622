"""The formats that a run can be exported to, by name."""

from collections.abc import Mapping
from pathlib import Path

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.results import csv_of
from trainlab.errors import SpecError
from trainlab.export.frames import Exported, tables_of
from trainlab.record.files import make_folder, replacing
from trainlab.record.run_folder import RunFolder
from trainlab.spec.base import did_you_mean
from trainlab.words import check_language

FORMATS = ("csv", "parquet", "latex", "mlflow", "perfetto")


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
        return export_to_server(folder, evidence, lang, tracking_uri)
    if tracking_uri is not None:
        raise SpecError([f"--tracking-uri: is for --to mlflow, but --to is {to}; leave it out"])
    place = folder.export_folder if out is None else out
    if to == "perfetto":
        from trainlab.export.perfetto import write_traces

        return Exported(write_traces(folder, evidence, place))
    make_folder(place)
    files: Mapping[str, bytes]
    if to == "latex":
        from trainlab.export.latex import latex_files

        files = latex_files(evidence, lang)
    else:
        files = {
            f"{name}.{to}": csv_of(table) if to == "csv" else table.to_parquet(index=False)
            for name, table in tables_of(evidence, folder).items()
        }
    for name, content in files.items():
        with replacing(place / name) as part:
            part.write_bytes(content)
    return Exported(tuple(place / name for name in files))
