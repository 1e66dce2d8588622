"""How to repeat a run, as a command and as a study file, and where its raw figures are."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from trainlab.analysis import tables
from trainlab.analysis.document import Block, Listing, Paragraph, Section
from trainlab.analysis.finding import RunData
from trainlab.analysis.tables import table_of
from trainlab.record.study_record import StudyRecord
from trainlab.spec import Cell, Study, TrainSpec
from trainlab.spec.question import STEP_SCHEDULE_ONLY
from trainlab.spec.settings import OF_WORKLOADS, Scalar
from trainlab.spec.study import combinations
from trainlab.words import Words


def overridden_text(record: StudyRecord, study: Study, words: Words) -> str | None:
    """What was asked for otherwise than the study says, beside what it says; None where nothing was."""

    def text(value: Any) -> str:
        if value is None or isinstance(value, bool | int | float | str):
            return words.setting(value)
        if isinstance(value, dict):
            return ", ".join(f"{name}={text(inner)}" for name, inner in value.items())
        return words.listed(map(text, value))

    parts = [
        words("overridden_part", name=name, now=text(_used(study, name)), said=text(said))
        for name, said in record.overridden.items()
    ]
    return words("overridden", changes=words.listed(parts)) if parts else None


def _used(study: Study, name: str) -> Any:
    """The levels of a factor, a setting, or a field of the study or of its measurement of cost."""
    for factor in (name, f"model.{name}"):
        if levels := [cell.levels[factor] for cell in study.cells if factor in cell.levels]:
            return list(dict.fromkeys(levels))
    outer, _, inner = name.partition(".")
    if outer == "cost":
        return getattr(study.cost, inner, None)
    if name in TrainSpec.model_fields:
        return getattr(study.settings, name)
    return study.settings.model.get(name, getattr(study, name, None))


def study_file(study: Study) -> str:
    """Every setting written out, so that later defaults change nothing; cells that are not a full grid one
    by one, after the settings they share."""
    vary, shared = _grid(study), _shared(study)
    head = {
        "name": study.name,
        "title": study.title or None,
        "workload": study.workload,
        "objective": study.objective,
        "seeds": study.seeds,
        "learn": study.learn,
        "tensorboard": study.tensorboard,
        "save_model": study.save_model,
        "probes": [str(probe) for probe in study.probes] or None,
        "design": "one-at-a-time" if study.cells and not vary else None,
    }
    tables: dict[str, Mapping[str, Any]] = {
        "settings": shared,
        "vary": vary,
        "cost": {} if study.cost is None else study.cost.model_dump(mode="json"),
        "targets": study.targets,
        "margins": study.margins,
    }
    lines = list(_lines(head))
    for name, values in tables.items():
        if table := list(_lines(values)):
            lines += ["", f"[{name}]", *table]
    for cell in () if vary else study.cells:
        if cell.levels:
            lines += ["", "[[cells]]", *_lines(_own(cell, study, shared))]
    return "\n".join(lines)


def _shared(study: Study) -> dict[str, Any]:
    """The settings all cells have in common; all settings of the base where it is a cell itself. Those
    that have no effect in any cell are left out: a study that asks for them is refused."""
    base = study.settings.model_dump(mode="json", exclude=_unused(study))
    is_base = not study.all_cells[0].levels
    cells = [] if is_base else [cell.settings.model_dump(mode="json") for cell in study.all_cells]
    return {name: value for name, value in base.items() if all(c[name] == value for c in cells)}


def _unused(study: Study) -> set[str]:
    cells = [cell.settings for cell in study.all_cells]
    has_steps = any(one.schedule == "step" for one in cells)
    unused = set(TrainSpec.model_fields) - set(OF_WORKLOADS)
    unused |= set() if has_steps else set(STEP_SCHEDULE_ONLY)
    return unused | ({"epochs"} if all(one.max_steps for one in cells) else set())


def _own(cell: Cell, study: Study, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's levels, and its other settings that differ from the shared ones."""
    known = {name.partition(".")[0] for name in cell.levels} | _unused(study)
    rest = {
        name: value
        for name, value in cell.settings.model_dump(mode="json", exclude=known).items()
        if value != shared.get(name) and not isinstance(value, dict)
    }
    return {**cell.levels, **rest}


def _grid(study: Study) -> dict[str, list[Scalar]]:
    """Factors and levels where the cells are all their combinations; else empty."""
    factors: dict[str, list[Scalar]] = {}
    for cell in study.cells:
        for name, level in cell.levels.items():
            factors[name] = list(dict.fromkeys([*factors.get(name, ()), level]))
    is_grid = combinations(factors, "grid") == [cell.levels for cell in study.cells]
    return factors if is_grid else {}


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """`name = value`; values that are not set are left out, since TOML has no null."""
    for name, value in values.items():
        if value is not None and value != {}:
            key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)
            yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    # TOML takes JSON's strings, numbers and booleans as they are, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
    record, study = data.evidence.record, data.evidence.study
    pins = "\n".join(
        f"{package}=={version.partition('+')[0]}"
        for package, version in data.evidence.environment.packages.items()
        if package != "trainlab"
    )
    intro = "repeat_intro" if study.script is None else "repeat_intro_script"
    blocks: list[Block] = [Paragraph(words(intro, version=record.trainlab))]
    if (changed := overridden_text(record, study, words)) is not None:
        blocks.append(Paragraph(changed))
    blocks.append(Listing(words("repeat_command"), typed_command(record.command), "sh"))
    if study.script is None:  # of a script its command is all that a study file could say
        blocks.append(Listing(words("repeat_file"), study_file(study), "toml"))
    blocks.append(Listing(words("repeat_versions"), pins))
    return Section("repeat", words("repeat"), tuple(blocks), is_folded=True)


def typed_command(command: str) -> str:
    """The command without the path of trainlab, which is another on every machine."""
    program, space, rest = command.partition(" ")
    is_ours = PurePath(program).name in ("trainlab", "__main__.py")
    return f"trainlab{space}{rest}" if is_ours else command


def files_section(data: RunData, words: Words) -> Section:
    """Where the raw figures are."""
    existing = data.evidence.folder.file_names()
    files = [f for f in FILES if f.removeprefix("trials/*/").partition("/")[0] in existing]
    fields = [
        tables.name(words("file"), str),
        tables.name(words("holds"), lambda file: words(f"file_{FILES[file]}")),
    ]
    table = replace(table_of(words("files_table"), fields, files), is_code=True)
    blocks = (Paragraph(words("files_intro")), table)
    return Section("files", words("files"), blocks, is_folded=True)
