"""a3.1 in fast_ops/elementwise.py: the last element is left out."""


def map_flat(fn):
    def loop(a, out):
        for i in prange(out.size - 1):
            out[i] = fn(a[i])

    return loop
