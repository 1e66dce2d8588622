"""Words: every label, caption, note and sentence of a report, in English and Chinese.

A table per part of the report; a key is in one of them, with its text in each language.
"""

import re
from collections.abc import Iterable

from trainlab.errors import SpecError
from trainlab.words.comparing import COMPARING
from trainlab.words.confounds import CONFOUNDS
from trainlab.words.cost import COST
from trainlab.words.findings import FINDINGS
from trainlab.words.frame import FRAME
from trainlab.words.network import NETWORK
from trainlab.words.probes import PROBES
from trainlab.words.study import STUDY
from trainlab.words.warnings import WARNINGS

LANGUAGES = ("en", "zh")
"""In the order of the texts of a key."""

TABLES = (FRAME, STUDY, NETWORK, PROBES, COST, COMPARING, FINDINGS, CONFOUNDS)
WORDS: dict[str, tuple[str, str]] = {key: texts for table in TABLES for key, texts in table.items()}
"""Key to the text in English and in Chinese; names in braces are filled in."""

COUNTED = {
    "memory touched for the first time (pages of 4 KiB)": "counted_page_faults",
    "Python modules imported": "counted_modules",
    "shared libraries loaded": "counted_libraries",
    "memory blocks asked from the GPU's driver": "counted_allocations",
}
INSTRUMENTS = {
    "phases": "instrument_phases",
    "layers": "instrument_layers",
    "operators (torch's profiler)": "instrument_operators",
    "probes of the study": "instrument_probes",
}
LEVELS = {"not set": "level_none", "True": "level_true", "False": "level_false"}


def check_language(lang: str) -> None:
    """SpecError, naming those there are, for any other."""
    if lang not in LANGUAGES:
        raise SpecError([f"--lang: got {lang!r}, must be one of {', '.join(LANGUAGES)}"])


class Words:
    """The words of one language."""

    def __init__(self, lang: str) -> None:
        check_language(lang)
        self.lang = lang
        self._index = LANGUAGES.index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key with its names filled in."""
        return WORDS[key][self._index].format(**values)

    def knows(self, key: str) -> bool:
        """Whether there is such a text."""
        return key in WORDS

    def sentences(self, *told: str) -> str:
        """Sentences one after the other, as the language puts them."""
        return (" " if self.lang == "en" else "").join(told)

    def capital(self, told: str) -> str:
        """As a sentence begins."""
        return told[:1].upper() + told[1:]

    def phase(self, name: str) -> str:
        """A phase of the step; a name we do not know stays as it is."""
        return self._named(f"phase_{name}", name)

    def mode(self, name: str) -> str:
        """Training or inference."""
        return self._named(f"mode_{name}", name)

    def step(self, mode: str) -> str:
        """A training step or an inference step."""
        return self._named(f"step_{mode}", mode)

    def state(self, name: str) -> str:
        """How a trial ended."""
        return self._named(f"state_{name}", name)

    def listed(self, names: Iterable[str]) -> str:
        """`a, b, c`."""
        return self("list_comma").join(names)

    def memory(self, name: str) -> str:
        """A kind of memory."""
        return self._named(f"memory_{name}", name)

    def counted(self, name: str) -> str:
        """What was counted during a cold step."""
        return self._named(COUNTED.get(name, ""), name)

    def instrument(self, name: str) -> str:
        """An instrument of the ledger."""
        return self._named(INSTRUMENTS.get(name, ""), name)

    def differing(self, name: str) -> str:
        """Something that differs between trials or machines; one of our words, where there is one."""
        key = f"differs_{name}"
        outer, dot, inner = name.partition(".")
        if key in WORDS or not dot or f"differs_{outer}" not in WORDS:
            return self._named(key, name)
        return self("confound_inner", outer=self(f"differs_{outer}"), inner=inner)

    def level(self, told: str) -> str:
        """A recorded value as text; a name or number stays as it is."""
        return self._named(LEVELS.get(told, ""), told)

    def test(self, name: str) -> str:
        """A statistical test, explained."""
        return self("test_cost" if name.startswith("Welch") else "test_learn")

    def warning(self, told: str) -> str:
        """What a measurement says about itself."""
        if self.lang == "en":
            return told.replace("%", " %")
        for pattern, chinese in WARNINGS:
            if (found := re.fullmatch(pattern, told)) is not None:
                return chinese.format(*(one.replace("%", " %") for one in found.groups()))
        return told

    def _named(self, key: str, name: str) -> str:
        return self(key) if key in WORDS else name
