"""a15.5 in minitorch/data/cleaning/classifier.py: a long text has a long vector."""

RIGHT = "return sums / sums.new_tensor([[float(max(n, 1))] for n in counts])"
WRONG = "return sums"
