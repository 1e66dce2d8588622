"""The language that is spoken: that of --lang, else of TRAINLAB_LANG, else of the locale."""

import os
from collections.abc import Mapping, Sequence

VARIABLE = "TRAINLAB_LANG"
LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""The first that is set counts."""


def environment_language(environment: Mapping[str, str]) -> str:
    """The language of an environment; one that is none of ours where TRAINLAB_LANG says so."""
    if own := environment.get(VARIABLE):
        return own
    locales = (environment.get(name) for name in LOCALE_VARIABLES)
    return "zh" if (next(filter(None, locales), "")).lower().startswith("zh") else "en"


def spoken_language(lang: str | None) -> str:
    """The language asked for, or that of the environment, or English where it is none of ours."""
    spoken = lang if lang in ("en", "zh") else environment_language(os.environ)
    return "zh" if spoken == "zh" else "en"


def split_language(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """What a command line gives as --lang, whatever is wrong with the rest of it, and its other words."""
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--lang":
            end = number + (1 if equals else 2)
            lang = value if equals else "".join(words[number + 1 : end])
            return lang, [*words[:number], *words[end:]]
    return None, list(words)
