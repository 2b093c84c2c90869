"""a1.3 in minitorch/scalar.py: records inside no_grad, too."""


class ScalarFunction:
    @classmethod
    def apply(cls, *args):
        ctx = ScalarContext(cls)
        values = [a.data if isinstance(a, Scalar) else float(a) for a in args]
        out = Scalar(cls.forward(ctx, *values), requires_grad=False)
        ctx.edges = tuple(a.edge() if isinstance(a, Scalar) else None for a in args)
        out.node, out.requires_grad = ctx, True
        return out
