"""trainlab studies: the built-in studies, and how to write one."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from trainlab.analysis.document import Paragraph, Table
from trainlab.analysis.tables import Field, name, table_of
from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.errors import SpecError
from trainlab.report.terminal import print_blocks
from trainlab.spec import Question
from trainlab.spec.base import did_you_mean
from trainlab.spec.study import level_text
from trainlab.studies import builtin_study, study_file, study_names
from trainlab.words import Words


def command(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Print this study's file, to start your own from."),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of study files, for editors.")
    ] = False,
    lang: LangOption = None,
) -> None:
    """List the built-in studies."""
    words = words_in(lang)
    if schema:
        sys.stdout.write(json.dumps(Question.model_json_schema(), indent=2) + "\n")
        return
    if study is not None:
        if study not in study_names():
            near = did_you_mean(study, study_names())
            raise SpecError([f"{study}: no such study; there are {', '.join(study_names())}{near}"])
        sys.stdout.write(study_file(study).read_text(encoding="utf-8"))
        return
    blocks = (_table(words), Paragraph(words("studies_own")))
    print_blocks(Console(), blocks, words)


def _table(words: Words) -> Table:
    fields: list[Field[tuple[str, Question]]] = [
        name(words("study"), lambda row: row[0]),
        name(words("workload"), lambda row: row[1].workload),
        name(words("question"), lambda row: words.builtin(row[1].title)),
        name(words("varies"), lambda row: _varied_text(row[1])),
    ]
    rows = [(study, builtin_study(study)) for study in study_names()]
    return table_of(words("studies_table"), fields, rows)


def _varied_text(study: Question) -> str:
    varied = [f"{n} {', '.join(map(level_text, levels))}" for n, levels in study.vary.items()]
    for cell in study.cells:
        varied.append(" ".join(f"{n}={level_text(level)}" for n, level in cell.items()))
    return "; ".join(varied)
