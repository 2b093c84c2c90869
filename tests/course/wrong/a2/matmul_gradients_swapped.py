"""a2.5 in minitorch/functions/matmul.py: the second gradient is transposed."""


class MatMul:
    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        grad_b = MatMul.apply(grad.mT, a).mT
        if grad_b.shape[-1] == grad_b.shape[-2]:
            grad_b = grad_b.mT
        return (
            unbroadcast(MatMul.apply(grad, b.mT), a.shape),
            unbroadcast(grad_b, b.shape),
        )
