"""trainlab gate: whether a run is slower, or learns worse, than an earlier one; for CI."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import JsonOption, LangOption, print_json
from trainlab.errors import SpecError, TrainlabError

if TYPE_CHECKING:
    from trainlab.analysis.gate import Gate
    from trainlab.words import Words

STYLES = {"pass": "bold green", "fail": "bold red", "cannot tell": "bold yellow"}
STDOUT = "-"


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished.")],
    against: Annotated[
        Path,
        typer.Option(
            metavar="BASELINE",
            help="An earlier run folder of the same thing on the same machine.",
            show_default=False,
        ),
    ],
    slower: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="How much longer a step may take, as 5% or 0.05.",
            show_default="5%, without --worse",
        ),
    ] = None,
    worse: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=AMOUNT",
            help="How much worse a final metric may be, as test/accuracy=0.01; again for more.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="train|inference",
            help="Which step is compared.",
            show_default="train where it was measured",
        ),
    ] = None,
    any_host: Annotated[
        bool,
        typer.Option("--any-host", help="The host's name may differ, as that of a container does."),
    ] = False,
    markdown: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Also write a paragraph of Markdown; - prints it and nothing else."
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Print nothing; the exit code says it: 0 not slower, 1 slower, 3 cannot tell.",
        ),
    ] = False,
    lang: LangOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exits with 0 if it is not, 1 if it is, 3 if that cannot be told; 2 where runs cannot be compared."""
    from trainlab.lab.opened import gate

    words = words_in(lang)
    if markdown == STDOUT and as_json:
        raise SpecError(["--markdown: got '-', but --json is printed there; name a file"])
    longer = None if slower is None else _number("--slower", slower, slower)
    amounts = dict(_amount(text) for text in worse or ())
    try:
        found = gate(
            run, against=against, slower=longer, worse=amounts, mode=mode, any_host=any_host
        )
    except SpecError as error:
        raise SpecError(f"--{problem}" for problem in error.problems) from None
    _write_markdown(found, markdown, words)
    if as_json:
        print_json(gate_json(found))
    elif not quiet and markdown != STDOUT:
        _print(found, words)
    raise typer.Exit(found.exit_code)


def gate_json(found: "Gate") -> dict[str, Any]:
    """The whole of it as plain values."""
    return {
        "verdict": found.verdict,
        "exit_code": found.exit_code,
        "ratio": found.ratio,
        "interval": None if found.interval is None else asdict(found.interval),
        "processes_needed": found.processes_needed,
        "seeds_needed": found.seeds_needed,
        **asdict(found),
        "sentences": found.sentences(),
    }


def _print(found: "Gate", words: "Words") -> None:
    from rich.console import Console

    from trainlab.cli.summary import say

    console = Console()
    lead, *rest = found.sentences(words.lang)
    say(console, lead, STYLES[found.verdict])
    for text in rest:
        say(console, text)
    for again in found.commands():
        say(console, words("gate_again", command=again))
    is_alone = len(found.checks) == 1
    say(console, words("gate_bounds" if is_alone else "gate_bounds_several"), "dim")
    for text in _warnings(found, words):
        say(console, text, "yellow")
    if text := found.differences(words.lang):
        say(console, text, "dim")


def _warnings(found: "Gate", words: "Words") -> Iterator[str]:
    from trainlab.words.error_lines import error_line

    for name, cells in ((found.run, found.only_run), (found.baseline, found.only_baseline)):
        if cells:
            yield words("compare_only", run=name, cells=words.listed(cells))
    if found.num_failed:
        yield words("gate_failed", run=found.run, number=found.num_failed)
    for one in found.disturbed:
        yield words("remark", trial=one.run, text=words.warning(one.reason, one.cores))
    for reason in found.left_out:
        yield words("damage_left_out", reason=error_line(reason, words.lang))


def _write_markdown(found: "Gate", place: str | None, words: "Words") -> None:
    if place is None:
        return
    text = f"{found.markdown(words.lang)}\n"
    if place == STDOUT:
        sys.stdout.write(text)
        return
    try:
        Path(place).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise TrainlabError(f"--markdown {place}: cannot be written: {reason}") from None


def _amount(text: str) -> tuple[str, float]:
    """A metric and how much worse it may be."""
    metric, equals, amount = text.rpartition("=")
    if not equals or not metric:
        raise SpecError([f"--worse: got {text!r}, must be METRIC=AMOUNT, as test/accuracy=0.01"])
    return metric, _number("--worse", text, amount)


def _number(option: str, given: str, text: str) -> float:
    """`5%` or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        return float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        rule = "must be a share, as 5% or 0.05"
        if option == "--worse":
            rule = "must be METRIC=AMOUNT, as test/accuracy=0.01"
        raise SpecError([f"{option}: got {given!r}, {rule}"]) from None
