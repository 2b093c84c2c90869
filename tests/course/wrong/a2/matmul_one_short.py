"""a2.5 in minitorch/simple_ops/matmul.py: leaves the last product out."""


def matmul(a, b):
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    left, right = read(a.expand((*batch, m, k))), read(b.expand((*batch, k, n)))
    out = []
    for t in range(math.prod(batch)):
        for i in range(m):
            for j in range(n):
                terms = [
                    left[(t * m + i) * k + p] * right[(t * k + p) * n + j]
                    for p in range(k - 1)
                ]
                out.append(sum(terms))
    return tensor(out, (*batch, m, n), a.dtype)
