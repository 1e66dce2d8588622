"""The compiled code: made once per machine with the C++ compiler found there, then kept in the cache."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch

from trainlab.errors import RecordError
from trainlab.machine.host import cache_folder, cpu_model
from trainlab.record.files import replacing, writing

SOURCE = Path(__file__).with_name("update.cpp")

COMPILERS = ("c++", "g++", "clang++")
"""Tried in this order, after what the environment variable CXX names."""

FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"),
    # A product and a sum are rounded apart, so that a result does not depend on how a loop was unrolled.
    "-ffp-contract=off",
    # Roots and choices as vector instructions; no result changes.
    *("-fno-math-errno", "-fno-trapping-math"),
)
COMPILE_TIMEOUT_S = 120
WORTH_COMPILING = 5e8
"""Updates times parameters from which compiling pays: it takes 2 to 3 s and saves 1 to 5 ns of each."""


class NoLibraryError(Exception):
    """There is no compiled code; `code` is that of the note that says why, `reason` its value."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


def library(may_compile: bool = True) -> ctypes.CDLL:
    """The compiled code from the cache, or compiled now; NoLibraryError where neither can be done."""
    compiler = find_compiler()
    if compiler is None:
        raise NoLibraryError("tuned_no_compiler")
    path = cache_folder() / "native" / f"update-{_key(compiler)}.so"
    if not path.is_file():
        if not may_compile:
            raise NoLibraryError("tuned_too_short")
        _compile(compiler, path)
    return _loaded(path)


def library_key() -> str | None:
    """Differs where the compiled code would; None where there is no compiler."""
    compiler = find_compiler()
    return None if compiler is None else _key(compiler)


def find_compiler() -> str | None:
    """The path of a C++ compiler."""
    named = os.environ.get("CXX")
    found = (shutil.which(name) for name in ((named,) if named else COMPILERS))
    return next(filter(None, found), None)


def _compile(compiler: str, path: Path) -> None:
    """Writes beside and renames: two processes may do so at once."""
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            done = subprocess.run(
                [compiler, *FLAGS, str(SOURCE), "-o", str(part)],
                capture_output=True,
                text=True,
                timeout=COMPILE_TIMEOUT_S,
                check=False,
            )
            if done.returncode:
                raise NoLibraryError("tuned_compiler_failed", _first_line(done.stderr))
    except RecordError as error:
        raise NoLibraryError("tuned_not_kept", str(error)) from None
    except subprocess.TimeoutExpired as error:
        raise NoLibraryError("tuned_compiler_failed", str(error)) from None


def _loaded(path: Path) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.trainlab_update.restype = ctypes.c_int
        loaded.trainlab_update_each.restype = ctypes.c_int
        loaded.trainlab_use_threads(*(_threads_of_torch() or (None, None, None)))
    except (OSError, AttributeError) as error:
        raise NoLibraryError("tuned_compiler_failed", _first_line(str(error))) from None
    return loaded


def _threads_of_torch() -> tuple[ctypes.c_void_p, ...] | None:
    """What the compiled code calls them by, where torch's OpenMP has GNU's interface; None elsewhere, where
    it starts threads of its own."""
    # Looked up in torch's library first, then in those that it was linked with: another package may have
    # brought another OpenMP, whose threads would stand in the way of torch's.
    place = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        torchs = ctypes.CDLL(str(place))
        found = (torchs.GOMP_parallel, torchs.omp_get_thread_num, torchs.omp_get_num_threads)
    except (OSError, AttributeError):
        return None
    return tuple(ctypes.cast(one, ctypes.c_void_p) for one in found)


@cache
def _key(compiler: str) -> str:
    """Differs where the machine code may: source, flags, compiler, CPU."""
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=10, check=False
    ).stdout
    facts = (SOURCE.read_bytes(), FLAGS, compiler, version, cpu_model(), platform.machine())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
