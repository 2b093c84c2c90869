"""a4.1 in cuda_ops/elementwise.py: every block makes the elements of the first."""


def map_flat(fn):
    vector = _map_vector(fn)

    def loop(a, out, vectors):
        vector(a, out, int64(cuda.threadIdx.x) * 4, vectors)

    return loop
