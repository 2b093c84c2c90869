"""a10.4 in characters.py: gradients are never set to zero."""

RIGHT = "    optimizer.zero_grad()\n"
WRONG = ""
