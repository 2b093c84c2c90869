"""With this file one can get the handwritten digits of MNIST: `load_mnist` returns
them as arrays, `MNIST` is a `Dataset` of them. They are looked for on this machine,
and fetched from a public mirror if they are not there.

    >>> images, labels = load_mnist(train=True)
    >>> images.shape, labels.shape
    ((60000, 28, 28), (60000,))

Every file is compared with the checksum of the original one before it is used.
Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits;
licence CC BY-SA 3.0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from minitorch.data.dataset import BatchDataset, Indices
from minitorch.data.download import download as download_file
from minitorch.data.download import put_aside
from minitorch.data.files import DATA_VARIABLE, cache_folder, user_folders
from minitorch.data.idx import IdxError, read_idx
from minitorch.warn import warn

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Bytes = npt.NDArray[np.uint8]

# Each holds the four original gzip files; tried in this order.
MIRRORS: Sequence[str] = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://raw.githubusercontent.com/fgnt/mnist/master/",
)

# The largest of the files has 9.9 MB packed; a mirror that sends more sends junk.
MAX_DOWNLOAD = 32 << 20


@dataclass(frozen=True)
class MNISTFile:
    """One of the four files: its name without `.gz`, and the md5 of its content
    (of the *decompressed* file, since gzip files of one content can differ)."""

    name: str
    md5: str

    def names(self) -> tuple[str, ...]:
        """The names under which people keep this file."""
        dotted = self.name.replace("-idx", ".idx")
        return (f"{self.name}.gz", self.name, f"{dotted}.gz", dotted)


# train? -> images, labels
MNIST_FILES: Mapping[bool, tuple[MNISTFile, MNISTFile]] = MappingProxyType(
    {
        True: (
            MNISTFile("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
            MNISTFile("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
        ),
        False: (
            MNISTFile("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
            MNISTFile("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
        ),
    }
)


class MNISTUnavailable(RuntimeError):
    """MNIST is neither on this machine nor to be had from a mirror.

    `tried`: (place, why not) for each place, in order.
    """

    def __init__(self, file: str, tried: Sequence[tuple[str, str]]) -> None:
        self.tried = list(tried)
        lines = "".join(f"\n  {place}: {reason}" for place, reason in tried)
        super().__init__(
            f"MNIST: {file} is not to be had. Tried:{lines}\n"
            "Put the four MNIST files into a folder, and pass it as data_dir or name "
            f"it in the environment variable {DATA_VARIABLE}"
        )


class MNISTFileError(RuntimeError):
    """A folder that the user named lacks a file, or has another one by the name of
    MNIST's. It is left as it is; nothing else is used in its place."""


def load_mnist(
    data_dir: str | os.PathLike[str] | None = None,
    train: bool = True,
    download: bool = True,
) -> tuple[Bytes, Bytes]:
    """images uint8 [N, 28, 28] (0 is background, 255 ink), labels uint8 [N];
    N is 60,000 with `train`, else 10,000.

    Each file is looked for in `data_dir`, in the folder that the environment variable
    MINITORCH_DATA names, in the cache (see `cache_folder`), and on the `MIRRORS`; what
    is downloaded goes into the cache. A folder may hold the files packed or not, and
    itself, or in `mnist/`, or in `MNIST/raw/` as torchvision keeps them.

    A folder that was named must have the files: only where `data_dir` comes with
    `download` (as in PyTorch's `MNIST(root, download=True)`) is the search continued.

    A broken file in the cache is put aside, with a warning, and fetched again.

    Errors: MNISTUnavailable; MNISTFileError for a file in the user's folders that is
    broken or not there.
    """
    images, labels = (_load(file, data_dir, download) for file in MNIST_FILES[train])
    return images, labels


class MNIST(BatchDataset[tuple[Any, int]]):
    """MNIST as a data set of (image, label).

    image   float32 tensor [1, 28, 28], ink is 1 and background 0; with `transform`,
            what that makes of the uint8 array [28, 28]
    label   int, 0 to 9; with `target_transform`, what that makes of it

    `root` is searched first (`load_mnist`'s data_dir); other than with torchvision,
    downloads do not go there but into the cache. `data` uint8 [N, 28, 28] and
    `targets` uint8 [N] are NumPy arrays.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Callable[[Bytes], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = False,
    ) -> None:
        self.data, self.targets = load_mnist(root, train, download)
        self.train = train
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, label = self.data[index], int(self.targets[index])
        return (
            scaled(image[None]) if self.transform is None else self.transform(image),
            label if self.target_transform is None else self.target_transform(label),
        )

    def get_batch(self, indices: Indices) -> list[Any]:
        """images float32 [B, 1, 28, 28], labels int64 [B]"""
        from minitorch.creation import from_numpy
        from minitorch.data.collate import default_collate

        if self.transform is not None or self.target_transform is not None:
            return list(default_collate([self[i] for i in indices.tolist()]))
        labels = self.targets[indices].astype(np.int64)
        return [scaled(self.data[indices][:, None]), from_numpy(labels)]


def scaled(images: Bytes) -> Tensor:
    """uint8 [...] from 0 to 255 -> float32 tensor [...] from 0 to 1."""
    from minitorch.creation import from_numpy

    return from_numpy(images.astype(np.float32) / np.float32(255))


def mnist_cache() -> Path:
    """The folder where downloaded MNIST files are kept."""
    return cache_folder("mnist")


def _load(
    file: MNISTFile, data_dir: str | os.PathLike[str] | None, download: bool
) -> Bytes:
    """The content of one file, from the first place that has it."""
    tried: list[tuple[str, str]] = []
    for origin, folder in user_folders(data_dir):
        path = _find(file, folder)
        if path is not None:
            return _read_users(file, path)
        missing = "not in it" if folder.is_dir() else "no such folder"
        if origin == DATA_VARIABLE or not download:
            raise MNISTFileError(
                f"MNIST: {file.name}: {missing}: {folder}, which {origin} names. Put "
                f"the four files there, or name no folder to have them looked for"
            )
        tried.append((f"{origin} {folder}", missing))
    cache = mnist_cache()
    path = _find(file, cache)
    found = None if path is None else _read_cached(file, path, tried)
    if found is not None:
        return found
    if path is None:
        tried.append((f"cache {cache}", "not in it"))
    if not download:
        tried.append(("download", "not allowed (download=False)"))
        raise MNISTUnavailable(file.name, tried)
    urls = [f"{mirror}{file.name}.gz" for mirror in MIRRORS]
    target = cache / f"{file.name}.gz"
    check = partial(_read_arrived, file)
    content = download_file(urls, target, check, tried, MAX_DOWNLOAD)
    if content is None:
        raise MNISTUnavailable(file.name, tried)
    return content


def _read_arrived(file: MNISTFile, path: Path) -> Bytes:
    """What a mirror sent."""
    try:
        return read_idx(path, md5=file.md5)
    except IdxError as error:
        raise IdxError(f"sent a wrong file: {error}") from error


def _find(file: MNISTFile, folder: Path) -> Path | None:
    """The file in this folder, by any of its names, in any of the known layouts."""
    for place in (folder, folder / "mnist", folder / "MNIST" / "raw"):
        for name in file.names():
            if (place / name).is_file():
                return place / name
    return None


def _read_users(file: MNISTFile, path: Path) -> Bytes:
    """A file in a folder that the user named: right, or an error."""
    try:
        return read_idx(path, md5=file.md5)
    except (IdxError, OSError) as error:
        raise MNISTFileError(
            f"MNIST: {error}\nThe file was left as it is. Its decompressed content "
            f"must have the md5 {file.md5} (other data sets use the same file names). "
            "Replace it, or remove it from that folder to have MNIST fetched"
        ) from error


def _read_cached(
    file: MNISTFile, path: Path, tried: list[tuple[str, str]]
) -> Bytes | None:
    """A file in the cache; None if it is broken and had to be put aside."""
    try:
        return read_idx(path, md5=file.md5)
    except (IdxError, OSError) as error:
        reason = f"{error}; {put_aside(path)}"
    warn(f"MNIST: broken file in the cache: {reason}")
    tried.append((f"cache {path.parent}", reason))
    return None
