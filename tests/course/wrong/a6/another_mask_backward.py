"""a6.5 in minitorch/functions/random.py: the gradient gets zeros of its own."""


class Dropout:
    @staticmethod
    def backward(ctx, grad):
        p, seed, offset = ctx.options
        return Dropout.apply(grad, p, seed, offset + 1), None, None, None
