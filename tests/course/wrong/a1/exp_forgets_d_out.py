"""a1.2 in minitorch/scalar.py: the derivative alone, without the gradient above."""


class Exp:
    @staticmethod
    def backward(ctx, d_out):
        (out,) = ctx.saved_values
        return out
