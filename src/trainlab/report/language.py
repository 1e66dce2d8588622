"""Languages: findings in words."""

from collections.abc import Callable

from trainlab.analyse.finding import Finding
from trainlab.errors import SpecError
from trainlab.report import chinese, english

LANGUAGES: dict[str, Callable[[Finding], str]] = {
    "en": english.sentence,
    "zh": chinese.sentence,
}


def check_language(lang: str) -> None:
    """SpecError, naming those there are, for any other."""
    if lang not in LANGUAGES:
        raise SpecError([f"--lang: got {lang!r}, must be one of {', '.join(LANGUAGES)}"])


def sentence(found: Finding, lang: str = "en") -> str:
    """The finding in a language."""
    check_language(lang)
    return LANGUAGES[lang](found)
