"""trainlab export: a run for other programs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption

if TYPE_CHECKING:
    from trainlab.export.formats import Exported
    from trainlab.words import Words


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="csv|parquet|latex|mlflow|perfetto", help="The format.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write files; not given: RUN/export."),
    ] = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="MLflow's server, as http://HOST:5000.",
            show_default="MLFLOW_TRACKING_URI",
        ),
    ] = None,
    lang: LangOption = None,
) -> None:
    """Write a run in a format that other programs read."""
    from trainlab.lab import open_run

    words = words_in(lang)
    exported = open_run(run).export(to, out, lang=words.lang, tracking_uri=tracking_uri)
    for line in _lines(exported, words):
        sys.stdout.write(f"{line}\n")


def _lines(exported: "Exported", words: "Words") -> list[str]:
    """The files, or what has become of the runs on a server."""
    if not exported.experiment:
        return [str(path) for path in exported.paths]
    made = words.counted("one_trial", "some_trials", exported.num_new)
    place = {"experiment": exported.experiment, "uri": exported.tracking_uri}
    lines = [words("exported_new", trials=made, **place)]
    if exported.num_there:
        lines.append(words("exported_there", number=exported.num_there))
    if exported.num_left_out:
        lines.append(words("exported_left_out", number=exported.num_left_out))
    return lines
