"""a7.2 in fast_ops/sparse.py: element p meets x[p], not x[col[p]]."""


@device_function
def part_of_row(values, col, x, first, last):
    total = values.dtype.type(0)
    for p in range(first, last):
        total += values[p] * x[p - first]
    return total
