"""a2.3 in minitorch/simple_ops/elementwise.py: takes the storage as it lies."""


def map(fn, a, dtype=None, out=None):
    values = [fn(x) for x in a.storage.array[: a.size].tolist()]
    if out is not None:
        return write(out, values)
    return tensor(values, a.shape, dtype or a.dtype)
