"""a8.3 in minitorch/functions/norm.py: a gradient of the gradient is no error."""


class LayerNorm:
    @staticmethod
    def backward(ctx, grad):
        x, mean, rstd, weight = ctx.saved_tensors
        w = None if weight is None else weight.raw
        args = grad.raw, x.raw, mean.raw, rstd.raw, w
        return _wanted(ctx, grad, grad.backend.layer_norm_backward(*args))
