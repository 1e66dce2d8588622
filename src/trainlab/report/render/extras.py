"""The optional packages of reports, each imported by the module that needs it."""

import importlib
from types import ModuleType

from trainlab.errors import MissingExtraError


def import_extra(package: str, purpose: str) -> ModuleType:
    """The package; MissingExtraError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        remedy = "pip install 'trainlab[report]'"
        raise MissingExtraError(f"{purpose} needs {package}: {remedy}") from None
