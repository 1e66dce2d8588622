"""The user's cache: where fetched data and the machine's measured limits are kept."""

import os
from pathlib import Path

import platformdirs

from trainlab.errors import DataError

CACHE_VARIABLE = "TRAINLAB_CACHE"


def cache_folder() -> Path:
    """The user's cache; the environment variable TRAINLAB_CACHE moves it."""
    named = os.environ.get(CACHE_VARIABLE)
    return expanded(named) if named else Path(platformdirs.user_cache_dir("trainlab"))


def expanded(name: str) -> Path:
    """A path as users write it, `~` included."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise DataError(f"{name}: there is no such user's home") from None
