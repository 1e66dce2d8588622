"""Optional packages, each imported by the module that needs it."""

import importlib
from types import ModuleType

from trainlab.errors import MissingExtraError


def import_extra(package: str, purpose: str, extra: str = "report") -> ModuleType:
    """The package; MissingExtraError with the command that installs it, as one of trainlab's extras."""
    try:
        return importlib.import_module(package)
    except ImportError:
        remedy = f"pip install 'trainlab[{extra}]'"
        raise MissingExtraError(f"{purpose} needs {package}: {remedy}") from None
