"""Optional packages, each imported by the module that needs it."""

import importlib
import importlib.util
from types import ModuleType

from trainlab.errors import MissingExtraError


def import_extra(package: str, purpose: str, extra: str = "report") -> ModuleType:
    """The package; MissingExtraError with the command that installs it, as one of trainlab's extras."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise _missing(package, purpose, extra) from None


def check_extra(package: str, purpose: str, extra: str = "report") -> None:
    """The same MissingExtraError, without the seconds that importing the package may take."""
    if importlib.util.find_spec(package) is None:
        raise _missing(package, purpose, extra)


def _missing(package: str, purpose: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f"{purpose} needs {package}: pip install 'trainlab[{extra}]'")
