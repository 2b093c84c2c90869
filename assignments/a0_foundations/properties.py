"""Properties of the scalar operators, as tests by Hypothesis.

With this file one can test any implementation of the operators: each function takes an
object `ops` that has them by name (`ops.add(2.0, 3.0)`), and asserts what must hold for
all numbers that Hypothesis draws.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

numbers = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))


def close(x: float, y: float) -> bool:
    """Whether two results are equal but for rounding."""
    return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)


@given(numbers, numbers)
def test_symmetric(ops: Any, x: float, y: float) -> None:
    """add and mul give the same for (x, y) and (y, x)."""
    # BEGIN SOLUTION a0.2
    assert ops.add(x, y) == ops.add(y, x)
    assert ops.mul(x, y) == ops.mul(y, x)
    # END SOLUTION a0.2


@given(numbers, numbers, numbers)
def test_distributes(ops: Any, x: float, y: float, z: float) -> None:
    """z times a sum is the sum of the products."""
    # BEGIN SOLUTION a0.2
    left = ops.mul(z, ops.add(x, y))
    assert close(left, ops.add(ops.mul(z, x), ops.mul(z, y)))
    # END SOLUTION a0.2


@given(numbers)
def test_neutral(ops: Any, x: float) -> None:
    """Adding 0 and multiplying by 1 change nothing; multiplying by 0 gives 0."""
    # BEGIN SOLUTION a0.2
    assert ops.identity(x) == ops.add(x, 0.0) == ops.mul(x, 1.0) == x
    assert ops.mul(x, 0.0) == 0
    # END SOLUTION a0.2


@given(numbers, numbers)
def test_inverses(ops: Any, x: float, y: float) -> None:
    """sub undoes add, div undoes mul, neg undoes itself, and x + neg(x) is 0."""
    # BEGIN SOLUTION a0.2
    assert close(ops.sub(ops.add(x, y), y), x)
    assert ops.neg(ops.neg(x)) == x
    assert ops.add(x, ops.neg(x)) == 0
    assert ops.sub(x, y) == ops.neg(ops.sub(y, x))
    if y != 0:
        assert close(ops.div(ops.mul(x, y), y), x)
    # END SOLUTION a0.2


@given(numbers, numbers, numbers)
def test_ordered(ops: Any, x: float, y: float, z: float) -> None:
    """Exactly one of x < y, x == y, x > y holds; < is transitive; max and min fit."""
    # BEGIN SOLUTION a0.2
    assert ops.lt(x, y) + ops.eq(x, y) + ops.gt(x, y) == 1
    assert ops.lt(x, y) == ops.gt(y, x)
    assert not ops.lt(x, x)
    assert ops.eq(x, x)
    if ops.lt(x, y) and ops.lt(y, z):
        assert ops.lt(x, z)
    high, low = ops.maximum(x, y), ops.minimum(x, y)
    assert {high, low} == {x, y}
    assert not ops.lt(high, low)
    # END SOLUTION a0.2


@given(numbers, numbers)
def test_sigmoid(ops: Any, x: float, y: float) -> None:
    """sigmoid lies between 0 and 1, is 1/2 at 0, rises, and s(-x) is 1 - s(x)."""
    # BEGIN SOLUTION a0.2
    s = ops.sigmoid(x)
    assert 0 <= s <= 1
    assert ops.sigmoid(0.0) == 0.5
    assert close(ops.sigmoid(-x), 1 - s)
    if x < y:
        assert s <= ops.sigmoid(y)
    assert close(s, 1 / (1 + math.exp(-x)))
    # END SOLUTION a0.2


@given(numbers)
def test_relu(ops: Any, x: float) -> None:
    """relu keeps what is above 0, and gives 0 for all else; so does its gradient."""
    # BEGIN SOLUTION a0.2
    assert ops.relu(x) == (x if x > 0 else 0)
    assert ops.relu_backward(3.0, x) == (3.0 if x > 0 else 0)
    # END SOLUTION a0.2


@given(numbers)
def test_absolute(ops: Any, x: float) -> None:
    """abs is never below 0, even, and sign(x) times x; sign is 0 at 0, else 1 or -1."""
    # BEGIN SOLUTION a0.2
    assert ops.abs(x) >= 0
    assert ops.abs(x) == ops.abs(-x) == ops.sign(x) * x
    assert ops.sign(x) in (-1, 0, 1)
    assert (ops.sign(x) == 0) == (x == 0)
    # END SOLUTION a0.2
