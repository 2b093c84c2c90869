"""a18.2 in minitorch/serving/blocks.py: tokens from 256 on are others."""

RIGHT = "np.int64).tobytes()"
WRONG = "np.int64).astype(np.int8).tobytes()"
