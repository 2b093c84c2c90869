"""a3.1 in fast_ops/elementwise.py: takes all rows as if they were contiguous."""


def zip_strided(fn):
    def loop(a, a_at, a_steps, b, b_at, b_steps, out, out_at, out_steps, shape, chunk):
        chunks = (shape[3] + chunk - 1) // chunk
        for task in prange(shape[0] * shape[1] * shape[2] * chunks):
            i, j, k, start = place(np.int64(task), shape, chunks, chunk)
            n = min(chunk, shape[3] - start)
            p = a_at + position(i, j, k, start, a_steps)
            q = b_at + position(i, j, k, start, b_steps)
            r = out_at + position(i, j, k, start, out_steps)
            for e in range(n):
                out[at(r, e, 1)] = fn(a[at(p, e, 1)], b[at(q, e, 1)])

    return loop
