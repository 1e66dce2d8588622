"""The language that is spoken where none is asked for: that of TRAINLAB_LANG, else of the locale."""

from collections.abc import Mapping

VARIABLE = "TRAINLAB_LANG"
LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""The first that is set counts."""


def environment_language(environment: Mapping[str, str]) -> str:
    """The language of an environment; one that is none of ours where TRAINLAB_LANG says so."""
    if own := environment.get(VARIABLE):
        return own
    locales = (environment.get(name) for name in LOCALE_VARIABLES)
    return "zh" if (next(filter(None, locales), "")).lower().startswith("zh") else "en"
