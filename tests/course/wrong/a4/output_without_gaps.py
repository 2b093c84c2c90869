"""a4.2 in cuda_ops/elementwise.py: the output is taken for one without gaps."""


def zip_strided(fn):
    def loop(a, a_at, a_steps, b, b_at, b_steps, out, out_at, out_steps, shape, size):
        e = cuda.grid(1)
        if e < size:
            i, j, k, x = place(e, shape)
            p = load(a, a_at + position(i, j, k, x, a_steps))
            q = load(b, b_at + position(i, j, k, x, b_steps))
            store(out, out_at + e, fn(p, q))

    return loop
