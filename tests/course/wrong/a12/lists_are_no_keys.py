"""a12.1 in minitorch/backend/fusion.py: steps in a list, which is no key of kernels."""

RIGHT = "return Program(program.inputs, tuple(rest), kept, folded)"
WRONG = "return Program(program.inputs, rest, kept, folded)"
