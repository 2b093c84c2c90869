"""a2.3 in minitorch/simple_ops/reduce.py: folds only the first of the dims."""


def reduce(fn, a, dims, start, dtype=None):
    dims = tuple(dims)[:1]
    kept = tuple(1 if i in dims else size for i, size in enumerate(a.shape))
    folded = tuple(size if i in dims else 1 for i, size in enumerate(a.shape))
    values, strides = read(a), contiguous_strides(a.shape)
    results = []
    for first in iter_positions(kept, strides, 0):
        group = [values[p] for p in iter_positions(folded, strides, first)]
        results.append(operators.reduce(fn, group, start))
    return tensor(results, kept, dtype or a.dtype)
