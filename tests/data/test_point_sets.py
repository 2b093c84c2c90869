"""Point sets: shapes, ranges, seeds, and the rule that gives each its classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitorch.data import POINT_DATASETS, Points, xor

names = st.sampled_from(sorted(POINT_DATASETS))


def test_the_table_lists_them_all() -> None:
    expected = {"xor", "simple", "diagonal", "split", "circle", "spiral", "moons"}
    assert set(POINT_DATASETS) == expected
    assert all(make.__name__ == name for name, make in POINT_DATASETS.items())


@given(name=names, n=st.integers(0, 300), seed=st.integers(0, 2**64))
def test_shapes_types_and_ranges(name: str, n: int, seed: int) -> None:
    points = POINT_DATASETS[name](n, seed)
    assert isinstance(points, Points) and len(points) == n
    assert points.x.shape == (n, 2) and points.x.dtype == np.float32
    assert points.y.shape == (n,) and points.y.dtype == np.int64
    assert ((points.x >= 0) & (points.x < 1)).all()
    assert np.isin(points.y, [0, 1]).all()


@given(name=names, seed=st.integers(0, 1000))
def test_a_seed_gives_the_same_points_and_another_others(name: str, seed: int) -> None:
    first, again = POINT_DATASETS[name](50, seed), POINT_DATASETS[name](50, seed)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert (first.x != POINT_DATASETS[name](50, seed + 1).x).any()


SHARES = {
    "simple": 0.5,
    "diagonal": 0.5,
    "split": 0.4,
    "xor": 0.5,
    "circle": 1 - np.pi * 0.1,
    "spiral": 0.5,
    "moons": 0.5,
}


@pytest.mark.parametrize("name", SHARES)
def test_share_of_class_one(name: str) -> None:
    """Within 4 standard deviations of the area of the region."""
    points = POINT_DATASETS[name](10_000, 3)
    assert abs(points.y.mean() - SHARES[name]) < 4 * 0.5 / 100


def test_xor_rule() -> None:
    points = xor(1000, 0)
    for (a, b), y in zip(points.x, points.y, strict=True):
        assert y == int((a < 0.5) ^ (b < 0.5))


def test_spiral_arms_are_apart() -> None:
    """The nearest other point is of the same class, nearly always."""
    points = POINT_DATASETS["spiral"](400, 0)
    distance = np.linalg.norm(points.x[:, None] - points.x, axis=2)
    np.fill_diagonal(distance, np.inf)
    same = points.y[distance.argmin(axis=1)] == points.y
    assert same.mean() > 0.97
    assert abs(int(points.y.sum()) - 200) == 0


def test_negative_n() -> None:
    with pytest.raises(ValueError, match="n is -1"):
        xor(-1)


def test_moons_lie_in_each_other() -> None:
    """No line separates them, and no two of different classes are near each other."""
    points = POINT_DATASETS["moons"](2000, 0)
    ring, other = points.x[points.y == 0], points.x[points.y == 1]
    far = np.linalg.norm(ring[:, None] - other[None], axis=-1)
    assert 0.02 < far.min() and ring[:, 1].min() < other[:, 1].max()
