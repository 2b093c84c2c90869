"""a4.2 in cuda_ops/elementwise.py: a column is repeated as if it were a row."""


def zip_repeated(fn):
    def loop(a, b, out, inner, mode):
        first = int64(cuda.grid(1)) * 4
        for i in range(first, min(first + 4, out.size)):
            store(out, i, fn(load(a, i), load(b, i % b.size)))

    return loop
