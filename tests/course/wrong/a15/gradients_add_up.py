"""a15.5 in minitorch/data/cleaning/classifier.py: gradients of earlier batches stay."""

RIGHT = "            optimizer.zero_grad()\n"
WRONG = ""
