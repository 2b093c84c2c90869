"""a4.2 in cuda_ops/elementwise.py: rows are taken for contiguous."""


def zip_strided(fn):
    def loop(a, a_at, a_steps, b, b_at, b_steps, out, out_at, out_steps, shape, size):
        e = cuda.grid(1)
        if e < size:
            i, j, k, x = place(e, shape)
            p = load(a, a_at + position(i, j, k, 0, a_steps) + x)
            q = load(b, b_at + position(i, j, k, 0, b_steps) + x)
            store(out, out_at + position(i, j, k, x, out_steps), fn(p, q))

    return loop
