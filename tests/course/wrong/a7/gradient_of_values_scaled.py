"""a7.4 in minitorch/functions/sparse.py: multiplies the values' gradient by them."""


class CSRMatMul:
    @staticmethod
    def backward(ctx, grad):
        values, b = ctx.saved_tensors
        pattern = ctx.pattern
        need_values, need_b, _ = ctx.needs_input_grad
        to_values = CSRSample.apply(grad, b, pattern) * values if need_values else None
        to_b = transposed_matmul(values, grad, pattern) if need_b else None
        return to_values, to_b, None
