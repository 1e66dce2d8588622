"""The optional packages of reports, each imported by the module that needs it."""

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
"""Package to the extra of trainlab that installs it."""


def import_extra(package: str, purpose: str) -> ModuleType:
    """The package; MissingExtraError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(
            f"{purpose} needs {package}: pip install 'trainlab[{EXTRAS[package.partition('.')[0]]}]'"
        ) from None
