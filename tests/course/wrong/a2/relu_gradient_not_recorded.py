"""a2.4 in minitorch/functions/elementwise.py: ReLU's gradient is not recorded."""


class Relu:
    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return fused(operators.relu_backward, grad, out)
