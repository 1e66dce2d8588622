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


def formats_of(text: str) -> tuple[str, ...]:
    """`csv,latex` as formats; SpecError where there is no such one."""
    formats = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for one in formats:
        if one not in FORMATS:
            near = did_you_mean(one, FORMATS)
            raise SpecError([f"--to: got {one!r}, must be one of {', '.join(FORMATS)}{near}"])
    return formats


def export_run(
    folder: RunFolder,
    evidence: Evidence,
    to: str,
    out: Path | None = None,
    *,
    lang: str = "en",
    tracking_uri: str | None = None,
) -> Exported:
    """Writes a run in a format; SpecError where there is no such one."""
    check_language(lang)
    (to,) = formats_of(to)
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
