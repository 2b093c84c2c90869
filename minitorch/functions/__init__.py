"""The operations on tensors, one class each, in families.

With these files one can look up what an operation computes and what its gradient is:
the formula stands in the docstring, `forward` asks the tensor's backend for the values,
and `backward` is mathematics on tensors, so that it can be differentiated again.
"""
