"""How to repeat a run, and where its raw figures are."""

from pathlib import PurePath

from trainlab.report.document import Listing, Paragraph, Row, Section, table
from trainlab.report.entries import text
from trainlab.report.material import Material
from trainlab.report.study_file import study_file
from trainlab.words import Words


def repeat_section(material: Material, words: Words) -> Section:
    """The command as given, the study as a file, and the versions."""
    packages = material.evidence.environment.packages
    pins = "\n".join(
        f"{name}=={version.partition('+')[0]}"
        for name, version in packages.items()
        if name != "trainlab"
    )
    return Section(
        "repeat",
        words("repeat"),
        (
            Paragraph(words("repeat_intro", version=material.record.trainlab)),
            Listing(words("repeat_command"), command_told(material.record.command), "sh"),
            Listing(words("repeat_file"), study_file(material.evidence.study), "toml"),
            Listing(words("repeat_versions"), pins),
        ),
    )


def command_told(command: str) -> str:
    """Without the place where trainlab is installed, which is another on every machine."""
    program, space, rest = command.partition(" ")
    if PurePath(program).name not in ("trainlab", "__main__.py"):
        return command
    return f"trainlab{space}{rest}"


def files_section(material: Material, words: Words) -> Section:
    """Where the raw figures are."""
    names = {
        "study.json": "file_study",
        "environment.json": "file_environment",
        "results.csv": "file_results",
        "results.parquet": "file_parquet",
        "epochs.csv": "file_epochs",
        "trials/*/trial.json": "file_trial",
        "trials/*/curve.jsonl": "file_curve",
        "trials/*/probes.jsonl": "file_probes",
        "trials/*/cost.json": "file_cost",
        "trials/*/operators.json": "file_operators",
        "trials/*/layers.json": "file_layers",
        "trials/*/trace.json.gz": "file_trace",
        "trials/*/tensorboard": "file_tensorboard",
    }
    has = {
        "results.csv": "results.csv" in material.files,
        "results.parquet": "results.parquet" in material.files,
        "epochs.csv": "epochs.csv" in material.files,
        "trials/*/curve.jsonl": bool(material.evidence.learned),
        "trials/*/probes.jsonl": bool(material.evidence.probed),
        "trials/*/cost.json": bool(material.evidence.measured),
        "trials/*/operators.json": any(m.operators for m in material.evidence.measured),
        "trials/*/layers.json": any(m.layers for m in material.evidence.measured),
        "trials/*/trace.json.gz": material.num_traces > 0,
        "trials/*/tensorboard": material.has_tensorboard,
    }
    rows = [
        Row((text(name), text(words(key)))) for name, key in names.items() if has.get(name, True)
    ]
    headings = ((words("file"), False), (words("holds"), False))
    found = table(words("files_table"), headings, rows, is_code=True)
    return Section("files", words("files"), (Paragraph(words("files_intro")), found))
