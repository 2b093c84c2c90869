"""a13.2 in minitorch/nn/parallel/reducer.py: the gradient stays where it was,
without the others."""

RIGHT = "            p.grad = place"
WRONG = "            pass"
