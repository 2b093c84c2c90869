"""a4.1 in cuda_ops/elementwise.py: all four elements, whether they exist or not."""


def _map_vector(fn):
    @device
    def vector(a, out, i, vectors):
        for j in range(i, i + 4):
            store(out, j, fn(load(a, j)))

    return vector
