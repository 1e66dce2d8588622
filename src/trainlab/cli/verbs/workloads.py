"""trainlab workloads: what can be run by name."""

from rich.console import Console

from trainlab.analysis.document import Paragraph
from trainlab.analysis.tables import Field, name, table_of
from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.report.terminal import print_blocks
from trainlab.workloads.reference import BUILTIN, Entry


def command(lang: LangOption = None) -> None:
    """List the built-in workloads."""
    words = words_in(lang)
    fields: list[Field[Entry]] = [
        name(words("workload"), lambda entry: entry.name),
        name(words("what_it_is"), lambda entry: words.builtin(entry.summary)),
        name(words("defaults"), _defaults_text),
    ]
    table = table_of(words("workloads_table"), fields, BUILTIN.values())
    print_blocks(Console(), (table, Paragraph(words("workloads_own"))), words)


def _defaults_text(entry: Entry) -> str:
    return ", ".join(f"{name} {value}" for name, value in entry.defaults.items())
