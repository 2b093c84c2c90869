"""a0.2 in properties.py: a property that wrong implementations have as well."""


@given(numbers, numbers, numbers)
def test_ordered(ops, x, y, z):
    assert ops.lt(x, y) in (True, False)
