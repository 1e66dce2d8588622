"""How to repeat a run, and where its raw figures are."""

from dataclasses import replace
from pathlib import PurePath

from trainlab.analysis.document import Listing, Paragraph, Section
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import name, table_of
from trainlab.report.overridden import overridden_text
from trainlab.report.study_file import study_file
from trainlab.spec import Study
from trainlab.words import Words

FILES = {
    "study.json": "study",
    "environment.json": "environment",
    "environments/*.json": "environment",
    "results.csv": "results",
    "results.parquet": "parquet",
    "epochs.csv": "epochs",
    "probes.csv": "probe_table",
    "events/*.jsonl": "events",
    "logs/*.log": "logs",
    "trials/*/trial.json": "trial",
    "trials/*/curve.jsonl": "curve",
    "trials/*/watched.json": "watched",
    "trials/*/output.txt": "output",
    "trials/*/work": "work",
    "trials/*/network.json": "network",
    "trials/*/confusion.json": "confusion",
    "trials/*/probes.jsonl": "probes",
    "trials/*/probes.json": "probe_proof",
    "trials/*/cost.json": "cost",
    "trials/*/operators.json": "operators",
    "trials/*/layers.json": "layers",
    "trials/*/memory.json": "memory",
    "trials/*/limits.json": "limits",
    "trials/*/probe_price.json": "probe_price",
    "trials/*/trace.json.gz": "trace",
    "trials/*/tensorboard": "tensorboard",
    "trials/*/checkpoint": "checkpoint",
    "trials/*/attempts": "attempts",
}
"""Files of a run, and the keys of the words for what they hold; a report lists those that exist."""


def repeat_section(data: RunData, words: Words) -> Section:
    """The command as given, the study as a file, and the versions."""
    record = data.evidence.record
    pins = "\n".join(
        f"{package}=={version.partition('+')[0]}"
        for package, version in data.evidence.environment.packages.items()
        if package != "trainlab"
    )
    changed = overridden_text(record, data.evidence.study, words)
    intro = "repeat_intro" if data.evidence.study.script is None else "repeat_intro_script"
    return Section(
        "repeat",
        words("repeat"),
        (
            Paragraph(words(intro, version=record.trainlab)),
            *([] if changed is None else [Paragraph(changed)]),
            Listing(words("repeat_command"), typed_command(record.command), "sh"),
            *_study_file(data.evidence.study, words),
            Listing(words("repeat_versions"), pins),
        ),
    )


def _study_file(study: Study, words: Words) -> tuple[Listing, ...]:
    """None for a script: its command is all that a study file could say."""
    if study.script is not None:
        return ()
    return (Listing(words("repeat_file"), study_file(study), "toml"),)


def typed_command(command: str) -> str:
    """The command without the path of trainlab, which is another on every machine."""
    program, space, rest = command.partition(" ")
    if PurePath(program).name not in ("trainlab", "__main__.py"):
        return command
    return f"trainlab{space}{rest}"


def files_section(data: RunData, words: Words) -> Section:
    """Where the raw figures are."""
    existing = data.evidence.list_files()
    files = [f for f in FILES if f.removeprefix("trials/*/").partition("/")[0] in existing]
    fields = [
        name(words("file"), str),
        name(words("holds"), lambda file: words(f"file_{FILES[file]}")),
    ]
    table = replace(table_of(words("files_table"), fields, files), is_code=True)
    return Section("files", words("files"), (Paragraph(words("files_intro")), table))
