"""a16.4 in minitorch/scaling.py: gradients of all points are added up."""

RIGHT = "        optimizer.zero_grad()\n"
WRONG = ""
