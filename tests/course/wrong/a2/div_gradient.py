"""a2.4 in minitorch/functions/elementwise.py: the sign of the second gradient."""


class Div:
    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        over_b = grad / b
        return unbroadcast(over_b, a.shape), unbroadcast(over_b * (a / b), b.shape)
