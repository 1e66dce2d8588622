"""Suggestions: what a name that is not known was probably meant to be."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

CUTOFF = 0.6
"""How similar two names are, from 0 to 1, for the one to be taken for the other, misspelt."""
OTHERS_CUTOFF = 0.8
"""The same for names that others use: a short one, as gpu, is alike to too much."""


def nearest(
    name: str,
    names: Iterable[str],
    also_called: Mapping[str, str] | None = None,
    cutoff: float = CUTOFF,
) -> str | None:
    """The name that was probably meant; `also_called` gives names that others use for the same thing."""
    others = {_plain(other): known for other, known in (also_called or {}).items()}
    if (meant := others.get(_plain(name))) is not None:
        return meant
    spellings = {_plain(known): known for known in names}
    for known, alike in ((spellings, cutoff), (others, max(cutoff, OTHERS_CUTOFF))):
        if near := get_close_matches(_plain(name), known, n=1, cutoff=alike):
            return known[near[0]]
    return None


def did_you_mean(
    name: str, names: Iterable[str], also_called: Mapping[str, str] | None = None
) -> str:
    """`; did you mean …?` for the end of a rule; empty where nothing is alike."""
    near = nearest(name, names, also_called)
    return "" if near is None else f"; did you mean {near}?"


def name_hint(
    name: str,
    names: Iterable[str],
    otherwise: str,
    also_called: Mapping[str, str] | None = None,
    cutoff: float = CUTOFF,
) -> str:
    """For an unknown name: `did you mean …?` where one of the names is alike, else the other hint."""
    near = nearest(name, names, also_called, cutoff)
    return otherwise if near is None else f"did you mean {near}?"


def _plain(name: str) -> str:
    """Upper and lower case, and the kind of dash, tell no two names apart."""
    return name.strip().lower().replace("-", "_")
