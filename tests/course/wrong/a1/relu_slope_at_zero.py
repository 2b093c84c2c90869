"""a1.2 in minitorch/scalar.py: the slope of ReLU at 0 is taken for 1."""


class ReLU:
    @staticmethod
    def backward(ctx, d_out):
        (x,) = ctx.saved_values
        return d_out if x >= 0 else 0.0
