"""a17.3 in minitorch/nn/sparse.py: each value is put into its pair, not its four."""

RIGHT = "tensor(np.arange(half) // 2 * 4,"
WRONG = "tensor(np.arange(half) * 2,"
