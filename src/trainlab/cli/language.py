"""The language of the terminal: that of --lang, else of TRAINLAB_LANG, else of the locale."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlab.language import VARIABLE, environment_language

if TYPE_CHECKING:
    from trainlab.words import Words


def words_in(lang: str | None) -> "Words":
    """The words of the language asked for, or else of the environment's; SpecError where there are none."""
    from trainlab.words import Words, check_language

    if lang is None and os.environ.get(VARIABLE):
        check_language(os.environ[VARIABLE], VARIABLE)
    return Words(environment_language(os.environ) if lang is None else lang)


def spoken_language(lang: str | None) -> str:
    """The same where the language asked for may be none of ours: for error lines."""
    spoken = lang if lang in ("en", "zh") else environment_language(os.environ)
    return "zh" if spoken == "zh" else "en"


def asked_language(words: Sequence[str]) -> str | None:
    """What a command line gives as --lang, whatever is wrong with the rest of it."""
    return split_language(words)[0]


def split_language(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """What a command line gives as --lang, and its other words."""
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--lang":
            end = number + (1 if equals else 2)
            lang = value if equals else "".join(words[number + 1 : end])
            return lang, [*words[:number], *words[end:]]
    return None, list(words)
