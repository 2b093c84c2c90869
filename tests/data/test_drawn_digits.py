"""Drawn digits: seeds, streams, and that they look like MNIST's to a statistician."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitorch.data import drawn_digits
from minitorch.data.glyphs import GLYPHS, curve_weights, stroke_points


@pytest.fixture(scope="module")
def sample() -> tuple[np.ndarray, np.ndarray]:
    return drawn_digits(2000, seed=5)


@settings(max_examples=8)
@given(n=st.integers(0, 600), more=st.integers(0, 600), seed=st.integers(0, 2**70))
def test_the_first_digits_do_not_depend_on_how_many_follow(
    n: int, more: int, seed: int
) -> None:
    images, labels = drawn_digits(n, seed)
    assert images.shape == (n, 28, 28) and images.dtype == np.uint8
    assert labels.shape == (n,) and labels.dtype == np.uint8
    again, again_labels = drawn_digits(n + more, seed)
    np.testing.assert_array_equal(images, again[:n])
    np.testing.assert_array_equal(labels, again_labels[:n])


def test_seeds_and_parts_give_different_digits() -> None:
    kinds = [(0, True), (0, False), (1, True), (1, False)]
    images = [drawn_digits(500, seed, train)[0] for seed, train in kinds]
    flat = np.concatenate(images).reshape(2000, -1)
    assert len(np.unique(flat, axis=0)) == 2000


def test_every_500_hold_50_of_each_class(sample) -> None:
    counts = [np.bincount(part, minlength=10) for part in sample[1].reshape(4, 500)]
    assert np.array_equal(counts, np.full((4, 10), 50))


def test_callers_get_arrays_of_their_own() -> None:
    images, labels = drawn_digits(20, 9)
    before = images.copy(), labels.copy()
    images[:] = 0
    labels[:] = 0
    again = drawn_digits(20, 9)
    np.testing.assert_array_equal(again[0], before[0])
    np.testing.assert_array_equal(again[1], before[1])


def test_within_20_by_20(sample) -> None:
    ink = sample[0] > 0
    for axis in (1, 2):
        # Ink that a shift brought back in on the other side would span 28.
        seen = ink.any(axis=axis)
        span = 28 - seen.argmax(axis=1) - seen[:, ::-1].argmax(axis=1)
        assert span.max() <= 20 and span.min() >= 2


def test_centre_of_mass_is_where_mnist_has_it(sample) -> None:
    grey = sample[0].astype(np.float64)
    mass = grey.sum(axis=(1, 2))
    row = (grey.sum(axis=2) @ np.arange(28)) / mass
    column = (grey.sum(axis=1) @ np.arange(28)) / mass
    # Whole pixels are moved, so half a pixel is what remains.
    assert np.abs(row - 14).max() < 0.52 and np.abs(column - 14).max() < 0.52


def test_grey_values_are_spread_as_in_mnist(sample) -> None:
    """MNIST: mean 0.1307, deviation 0.3081, 19.1 % not background, 13.2 % over half."""
    grey = sample[0] / 255
    assert abs(grey.mean() - 0.1307) < 0.008
    assert abs(grey.std() - 0.3081) < 0.015
    assert abs((grey > 0).mean() - 0.191) < 0.03
    assert abs((grey > 0.5).mean() - 0.132) < 0.015


def test_classes_can_be_told_apart() -> None:
    """A linear classifier, fitted by least squares, on digits it has not seen."""
    x, y = drawn_digits(3000, 0)
    test_x, test_y = drawn_digits(1000, 0, train=False)

    def features(images: np.ndarray) -> np.ndarray:
        flat = images.reshape(len(images), -1) / 255
        return np.concatenate([flat, np.ones((len(images), 1))], axis=1)

    a = features(x)
    weights = np.linalg.solve(a.T @ a + 10 * np.eye(785), a.T @ np.eye(10)[y])
    guess = (features(test_x) @ weights).argmax(axis=1)
    right = guess == test_y
    assert right.mean() > 0.8
    # Chance is 10 %: no class may be lost among the others.
    assert min(right[test_y == digit].mean() for digit in range(10)) > 0.6


@pytest.mark.parametrize(("n", "seed"), [(-1, 0), (1, -1)])
def test_arguments_below_zero(n: int, seed: int) -> None:
    with pytest.raises(ValueError, match=f"n is {n}, seed is {seed}"):
        drawn_digits(n, seed)


# Strokes


def test_each_digit_has_at_least_four_glyphs_within_the_field() -> None:
    assert len(GLYPHS) == 10
    for glyphs in GLYPHS:
        assert len(set(glyphs)) == len(glyphs) >= 4
        for stroke in (stroke for glyph in glyphs for stroke in glyph):
            points = stroke_points(stroke)
            assert len(points) >= 2
            assert points.min() >= 0 and points.max() <= 102


@given(
    points=st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 100)),
        min_size=2,
        max_size=9,
        unique=True,
    ),
    closed=st.booleans(),
    count=st.integers(2, 60),
)
def test_curves(points: list[tuple[int, int]], closed: bool, count: int) -> None:
    if closed and len(points) > 2:
        points = [*points, points[0]]
    ends = np.array(points, float)
    weights = curve_weights(ends, count)
    assert weights.shape == (count, len(ends))
    # Moving all points moves the curve; it starts and ends where they do.
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-9)
    curve = weights @ ends
    np.testing.assert_allclose(curve[[0, -1]], ends[[0, -1]], atol=1e-9)


def test_a_curve_passes_through_its_points_in_even_steps() -> None:
    points = np.array([(0.0, 0.0), (40.0, 10.0), (50.0, 60.0), (0.0, 90.0)])
    curve = curve_weights(points, 400) @ points
    nearest = np.linalg.norm(curve[:, None] - points, axis=2).min(axis=0)
    assert nearest.max() < 0.5
    steps = np.linalg.norm(np.diff(curve, axis=0), axis=1)
    assert steps.max() < 1.2 * steps.min()


def test_two_points_make_a_straight_line() -> None:
    points = np.array([(0.0, 0.0), (30.0, 60.0)])
    curve = curve_weights(points, 5) @ points
    np.testing.assert_allclose(curve[:, 1], 2 * curve[:, 0])
