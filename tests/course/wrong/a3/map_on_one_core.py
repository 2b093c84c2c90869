"""a3.1 in fast_ops/elementwise.py: a loop that no other core shares."""


def map_flat(fn):
    def loop(a, out):
        for i in range(out.size):
            out[i] = fn(a[i])

    return loop
