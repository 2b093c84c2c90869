"""a13.4 in minitorch/distributed/tensor/parallel/layers.py: each rank adds the bias
before the sum."""

RIGHT = """\
        y = leave(linear(x, self.weight), self.outputs, self.group)
        return y if self.bias is None else y + self.bias
"""
WRONG = """\
        y = linear(x, self.weight, self.bias)
        return leave(y, self.outputs, self.group)
"""
