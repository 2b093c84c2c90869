"""a8.1 in cuda_ops/linear.py: the derivative is taken at x, without the bias."""


def bias_rows_backward(fn):
    def loop(grad, x, bias, out, mode):
        i = int64(cuda.grid(1)) * 4
        for j in range(i, min(i + 4, out.size)):
            store(out, j, fn(load(grad, j), load(x, j)))

    return loop
