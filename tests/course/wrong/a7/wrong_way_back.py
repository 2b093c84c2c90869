"""a7.4 in minitorch/functions/sparse.py: the gradient goes by the order, not back."""


class Reorder:
    @staticmethod
    def backward(ctx, grad):
        return Reorder.apply(grad, ctx.order, ctx.inverse), None, None
