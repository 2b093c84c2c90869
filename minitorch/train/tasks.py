"""What the recipes learn: examples to train on, examples to test on.

With this file one can get the data of a recipe as loaders (`points_task`,
`digits_task`). Points are drawn, digits are read, or drawn where MNIST cannot be had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minitorch.backend.registry import split_name
from minitorch.data import BatchDataset, DataLoader, Points, TensorDataset
from minitorch.data.dataset import HOST_DEVICES, Indices
from minitorch.train.config import ConfigError, TrainConfig

TEST_BATCH = 1000
TEST_POINTS = 1000

# The mean and the standard deviation of all pixels of MNIST's training images.
MNIST_MEAN, MNIST_STD = 0.1307, 0.3081

# No point of the xor recipe is nearer to a border than this, so that an answer that is
# right everywhere can be learnt from a few hundred points.
XOR_GAP = 0.04


@dataclass(frozen=True)
class Task:
    """Data of a recipe.

    Attributes:
        name: for titles: "MNIST", "drawn digits", "spiral".
        source: "mnist", "drawn", or the name of the points.
        notice: what the user should be told about the data, or "".
        train: batches of training examples, shuffled.
        test: batches of test examples, in order.
        train_data, test_data: inputs and labels, for pictures.
    """

    name: str
    source: str
    notice: str
    train: DataLoader
    test: DataLoader
    train_data: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    test_data: tuple[npt.NDArray[Any], npt.NDArray[Any]]


class ArrayDataset(BatchDataset[Any]):
    """Pairs of arrays x [N, ...] and y [N]; `prepare` makes float32 of rows of x.

    The arrays stay as they are (a byte for a pixel, say); only a batch is converted.
    """

    def __init__(
        self,
        x: npt.NDArray[Any],
        y: npt.NDArray[Any],
        prepare: Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]],
        device: str,
    ) -> None:
        self.x, self.y, self.prepare = x, y, prepare
        # The loop moves batches to other devices; here they are made by NumPy.
        self.device = device if device in HOST_DEVICES else "cpu"

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        x, y = self.get_batch(np.array([index]))
        return x[0], y[0]

    def get_batch(self, indices: Indices) -> Any:
        """x float32 [B, ...] and y int64 [B]."""
        from minitorch.creation import from_numpy

        x = self.prepare(self.x[indices])
        y = self.y[indices].astype(np.int64)
        return from_numpy(x, self.device), from_numpy(y, self.device)


ON_DEVICE = 2**30  # bytes of examples that a GPU keeps


def _dataset(
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    prepare: Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]],
    device: str,
) -> BatchDataset[Any]:
    """Examples for a loader. A GPU gets all of them once, if they are not too many,
    and picks the rows of a batch there."""
    if split_name(device)[0] != "cuda" or 4 * x.size > ON_DEVICE:
        return ArrayDataset(x, y, prepare, device)
    from minitorch.creation import from_numpy

    labels = from_numpy(y.astype(np.int64), device)
    return TensorDataset(from_numpy(prepare(x), device), labels)


def normalize_digits(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Bytes [B, 28, 28] -> numbers around 0, with spread 1, [B, 1, 28, 28]."""
    x = images[:, None].astype(np.float32)
    x -= np.float32(255 * MNIST_MEAN)  # a table of 256 results takes four times as long
    x *= np.float32(1 / (255 * MNIST_STD))
    return x


def scale_points(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Points of the unit square -> [-4, 4) x [-4, 4), where a network that was just
    made bends more."""
    return (x - np.float32(0.5)) * np.float32(8.0)


def points_task(config: TrainConfig) -> Task:
    """Points in the plane, as many as `limit` says, and 1000 others to test on."""
    from minitorch.data import POINT_DATASETS

    assert config.dataset is not None and config.limit is not None
    assert config.seed is not None
    draw = xor_with_gap if config.recipe == "xor" else POINT_DATASETS[config.dataset]
    # Both from one stream, so that test points are never training points.
    points = draw(config.limit + TEST_POINTS, config.seed)
    train = points.x[: config.limit], points.y[: config.limit]
    test = points.x[config.limit :], points.y[config.limit :]
    return _task(config, config.dataset, config.dataset, "", train, test, scale_points)


def xor_with_gap(n: int, seed: int) -> Points:
    """The points of `xor` that keep away from the borders by XOR_GAP, [n]."""
    from minitorch.data import xor

    # (1 - 2 * 0.04)^2 = 85 % of all points remain, so twice as many are enough.
    points = xor(2 * n + 100, seed)
    keep = np.abs(points.x - 0.5).min(axis=1) >= XOR_GAP
    return Points(points.x[keep][:n], points.y[keep][:n])


def digits_task(config: TrainConfig, source: Any = None) -> Task:
    """MNIST, or drawn digits where it cannot be had.

    Args:
        source: "mnist" or "drawn" to have nothing else, as when a run is resumed.
    """
    from minitorch.data import load_digits

    folder = config.data_dir
    if config.dataset == "drawn":
        source = "drawn"
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise ConfigError("data_dir", f"there is no folder {folder}")
    train = load_digits(folder, train=True, source=source, least=config.limit or 0)
    test = load_digits(folder, train=False, source=train.source)
    notice = train.notice
    if notice:
        notice += ". On the command line: --data-dir FOLDER"
    name = "MNIST" if train.source == "mnist" else "drawn digits"
    n = config.limit or len(train)
    if n > len(train):
        raise ConfigError("limit", f"got {n}; {name} has {len(train)} examples")
    return _task(
        config,
        name,
        train.source,
        notice,
        (train.images[:n], train.labels[:n]),
        (test.images, test.labels),
        normalize_digits,
    )


def _task(
    config: TrainConfig,
    name: str,
    source: str,
    notice: str,
    train: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    test: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    prepare: Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]],
) -> Task:
    assert config.batch_size is not None and config.device is not None
    assert config.seed is not None
    shuffled = DataLoader(
        _dataset(*train, prepare, config.device),
        config.batch_size,
        shuffle=True,
        seed=config.seed,
    )
    in_order = DataLoader(_dataset(*test, prepare, config.device), TEST_BATCH)
    return Task(name, source, notice, shuffled, in_order, train, test)
