"""a13.4 in minitorch/distributed/tensor/parallel/operators.py: the gradient behind
the sum is added up as well."""

RIGHT = """\
        return summed(x.contiguous(), group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None
"""
WRONG = """\
        ctx.group = group
        return summed(x.contiguous(), group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return summed(grad.contiguous(), ctx.group), None
"""
