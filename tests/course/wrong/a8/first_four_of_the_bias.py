"""a8.1 in cuda_ops/linear.py: four at a time meet the first four of the bias."""

RIGHT = "b0, b1, b2, b3 = load4(bias, int64(uint32(i) % n))"
WRONG = "b0, b1, b2, b3 = load4(bias, int64(uint32(i) % 4))"
