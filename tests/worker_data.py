"""Data sets for the workers of a `DataLoader`; spawned ones import them from here."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np

import minitorch
from minitorch.data import Dataset
from minitorch.utils.data import get_worker_info


class Numbers(Dataset[Any]):
    """Sample i is what `sample(i)` returns, of n."""

    def __init__(self, n: int, sample: Any = int) -> None:
        self.n, self.sample = n, sample

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)

    def __len__(self) -> int:
        return self.n


def fails_at_5(index: int) -> int:
    if index == 5:
        raise KeyError(f"sample {index}")
    return index


class Odd(Exception):
    """It cannot be unpickled: two arguments are needed, and one is kept."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)


def fails_oddly(index: int) -> int:
    raise Odd("odd one", 3)


def stops(index: int) -> int:
    raise StopIteration


def dies_at_5(index: int) -> int:
    if index == 5:
        os._exit(7)
    return index


def sleeps(index: int) -> int:
    time.sleep(600 if index == 5 else 0)
    return index


def large_at_once(index: int) -> np.ndarray:
    """More than a pipe holds."""
    return np.full((500, 500), index, np.float32)


def about_worker(index: int) -> tuple[int, int, int]:
    info = get_worker_info()
    assert info is not None and info.dataset.n > index
    return info.id, info.num_workers, os.getpid()


def random_numbers(index: int) -> tuple[float, float, float]:
    return random.random(), np.random.rand(), minitorch.rand(1).item()


def large_product(index: int) -> Any:
    """Tensor operations that the parent did before, on all of its threads."""
    a = minitorch.full((300, 300), float(index))
    return (a @ a).sum(0)


def set_level(number: int) -> None:
    os.environ["WORKER_LEVEL"] = str(number + 10)


def level(index: int) -> int:
    return int(os.environ["WORKER_LEVEL"])


def broken_start(number: int) -> None:
    raise ZeroDivisionError("no start")
