import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainlab.watching.imports import on_import


def test_a_module_is_told_once_when_all_of_it_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "seen_library"
    package.mkdir()
    (package / "__init__.py").write_text("from seen_library import part\nanswer = part.half * 2\n")
    (package / "part.py").write_text("half = 21\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders, told = list(sys.meta_path), list[int]()
    on_import("seen_library", lambda module: told.append(module.answer))
    on_import("seen_library.part", lambda module: told.append(module.half))
    assert find_spec("seen_library") is not None  # as libraries ask whether another is there
    assert not told
    library = importlib.import_module("seen_library")
    assert told == [21, 42]
    assert "exec_module" not in vars(library.__loader__)
    assert sys.meta_path == finders
    importlib.reload(library)
    assert told == [21, 42]
    on_import("seen_library", lambda module: told.append(module.answer + 1))
    assert told == [21, 42, 43]


def test_an_import_that_fails_is_waited_for_again_until_the_wait_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "failing_library.py"
    module.write_text("raise ImportError('not yet')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders, told = list(sys.meta_path), list[str]()
    end = on_import("failing_library", lambda module: told.append(module.__name__))
    end_other = on_import("no_such_library", lambda module: told.append("never"))
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module("failing_library")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        importlib.import_module("no_such_library")
    module.write_text("works_now = True\n")
    importlib.invalidate_caches()
    importlib.import_module("failing_library")
    assert told == ["failing_library"]
    end()
    end_other()
    assert sys.meta_path == finders
