"""Settings and metrics as people say them: batch 64, learning rate 0.01, the GPU, test accuracy."""

from collections.abc import Iterable, Sequence

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.spec import Cell
from trainlab.spec.settings import Scalar
from trainlab.spec.study import level_text, short_name
from trainlab.words import WORDS, Words

SPEAKING = ("optimizer", "precision", "device", "schedule")
"""Factors whose levels are names that need no factor beside them."""
IMAGES = ("mnist", "fashion-mnist")
"""Data sets whose samples are images."""


def level_name(factor: str, level: Scalar | None, words: Words) -> str:
    """A level of a factor: `batch 64`, `the GPU`, `adam`, `hidden 32`."""
    if level is None:
        return words("name_default", factor=factor_name(factor, words))
    text = level_text(level)
    kind = text.partition(":")[0] if factor == "device" else text
    for key in (f"name_{factor}_{kind}", f"name_{factor}"):
        if key in WORDS:
            return words(key, level=text)
    return text if factor in SPEAKING else f"{factor_name(factor, words)} {text}"


def cell_name(cell: Cell, words: Words) -> str:
    """All levels of a cell, or that it is the base."""
    if not cell.levels:
        return words("name_base")
    return words.listed(level_name(name, level, words) for name, level in cell.levels.items())


def factor_name(factor: str, words: Words) -> str:
    """`learning rate`; settings without a word of their own by their names."""
    return words.named("factor_name", short_name(factor))


def joined(names: Iterable[str], words: Words) -> str:
    """`a, b and c`."""
    *most, last = names
    return words("name_and", first=words("list_names").join(most), last=last) if most else last


def sample_word(evidence: Evidence, words: Words, *, many: bool = False) -> str:
    """What samples of the data set are called."""
    data = next((trial.data.name for trial in evidence.trials if trial.data is not None), None)
    return words(f"sample{'s' * many}_{'image' if data in IMAGES else 'any'}")


def section_of(factor: str | None) -> str:
    """The section of the report about a factor."""
    slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in factor or "")
    return f"factor-{slug}"


def names_of(finding: Finding, cells: Sequence[Cell], words: Words) -> tuple[str, str]:
    """The two settings that a comparison is about."""
    if finding.levels != (None, None):
        first, second = (level_name(finding.factor or "", one, words) for one in finding.levels)
        return first, second
    by_id = {cell.id: cell for cell in cells}
    first, second = (cell_name(by_id[cell], words) for cell in finding.cells)
    return first, second
