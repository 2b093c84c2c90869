"""a5.6 in roofline.py: as if caches kept both matrices."""


def traffic(M, N, K, rows=1, cols=1, itemsize=4):
    return itemsize * (M * K + K * N + M * N)
