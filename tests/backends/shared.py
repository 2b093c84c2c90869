"""What the tests of more than one family share: short names, sizes, parameters.

With this file a test goes through element types and layouts (`by_dtype`, `by_layout`),
makes indices (`long`, `indices`), and is smaller where loops are Python's (`large`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from helpers import FLOATS, LAYOUTS, NUMBERS, SIMULATED
from minitorch import dtypes
from minitorch.dtypes import float32
from minitorch.tensor_data import Shape

inf, nan = math.inf, math.nan


def name_of(backend: Any) -> str:
    return backend.empty((), float32).device.partition(":")[0]


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def long(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def large(backend: Any, slow: Shape, fast: Shape) -> Shape:
    """The larger shape for compiled backends, the smaller one for plain Python."""
    plain = name_of(backend) == "simple" or (name_of(backend) == "cuda" and SIMULATED)
    return slow if plain else fast


def indices(shape: Shape, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, size, shape)


by_dtype = pytest.mark.parametrize("dtype", dtypes.COMPUTED, ids=lambda d: d.name)
by_number = pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
by_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
by_layout = pytest.mark.parametrize("layout", LAYOUTS)
