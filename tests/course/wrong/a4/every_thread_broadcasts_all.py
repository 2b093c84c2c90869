"""a4.2 in cuda_ops/elementwise.py: each thread does the work of all."""


def map_strided(fn):
    def loop(a, a_at, a_steps, out, out_at, shape, size):
        for e in range(size):
            i, j, k, x = place(e, shape)
            value = load(a, a_at + position(i, j, k, x, a_steps))
            store(out, out_at + e, fn(value))

    return loop
