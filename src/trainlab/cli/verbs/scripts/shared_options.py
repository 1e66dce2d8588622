"""Options that trainlab has taken and the script has, too: said, since the script was not given them."""

import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from rich.console import Console

from trainlab.lab.script_study import found_script
from trainlab.spec.script import options_in
from trainlab.words import Words


def tell_shared_options(
    console: Console, script: Path | str, arguments: Sequence[str], words: Words
) -> None:
    """`arguments` are those that the script is given."""
    from trainlab.cli.summary import say

    path, _, source = found_script(script, arguments)
    known = options_in(source)
    for option in taken_options(sys.argv[1:], arguments):
        if option in known:
            say(console, words("shared_option", option=option, script=path.name))


def taken_options(command_line: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """Of a command line, those that were not left for the script."""
    for word in takewhile(lambda word: word != "--", command_line):
        if word.startswith("--") and word not in arguments:
            yield word.partition("=")[0]
