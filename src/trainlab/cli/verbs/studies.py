"""trainlab studies: the built-in studies, and how to write one."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainlab.errors import SpecError
from trainlab.spec import Question
from trainlab.spec.cell import level_text
from trainlab.spec.suggestion import did_you_mean
from trainlab.studies import builtin_study, study_file, study_names


def command(
    name: Annotated[
        str | None, typer.Argument(help="Print this study's file, to start your own from.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of study files, for editors.")
    ] = False,
) -> None:
    """List the built-in studies."""
    if schema:
        sys.stdout.write(json.dumps(Question.model_json_schema(), indent=2) + "\n")
        return
    if name is not None:
        if name not in study_names():
            near = did_you_mean(name, study_names())
            raise SpecError([f"{name}: no such study; there are {', '.join(study_names())}{near}"])
        sys.stdout.write(study_file(name).read_text(encoding="utf-8"))
        return
    table = Table()
    for column in ("study", "workload", "question", "varies"):
        table.add_column(column, overflow="fold")
    for study_name in study_names():
        study = builtin_study(study_name)
        varied = [f"{n} {', '.join(map(level_text, levels))}" for n, levels in study.vary.items()]
        for cell in study.cells:
            varied.append(" ".join(f"{n}={level_text(level)}" for n, level in cell.items()))
        table.add_row(study_name, study.workload, study.title, "; ".join(varied))
    Console().print(table)
    Console().print(
        "Your own: trainlab studies NAME > my-study.toml, edit, trainlab run my-study.toml"
    )
