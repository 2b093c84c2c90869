"""a6.1 in fast_ops/conv_direct.py: all outputs on one core."""


@kernel(parallel=True)
def _conv1d(x, weight, out, stride, padding, dilation):
    for n in range(x.shape[0]):
        for o in range(weight.shape[0]):
            for q in range(out.shape[2]):
                total = out.dtype.type(0)
                for c in range(x.shape[1]):
                    for k in range(weight.shape[2]):
                        at = q * stride + k * dilation - padding
                        if 0 <= at < x.shape[2]:
                            total += x[n, c, at] * weight[o, c, k]
                out[n, o, q] = total
