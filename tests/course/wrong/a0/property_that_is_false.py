"""a0.2 in properties.py: fails on a right implementation."""


@given(numbers, numbers)
def test_inverses(ops, x, y):
    assert ops.sub(x, y) == ops.sub(y, x)
