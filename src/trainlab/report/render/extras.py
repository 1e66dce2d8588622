"""The optional packages of reports, each asked for by the module that needs it."""

import importlib
from types import ModuleType

from trainlab.errors import MissingExtraError

EXTRAS = {
    "jinja2": "report",
    "markupsafe": "report",
    "vl_convert": "report",
    "brotli": "report",
    "fontTools": "report",
    "typst": "report",
}
"""Package to the extra of trainlab that brings it."""


def needed(package: str, what: str) -> ModuleType:
    """The package; MissingExtraError with the command that brings it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(
            f"{what} needs {package}: pip install 'trainlab[{EXTRAS[package.partition('.')[0]]}]'"
        ) from None
