"""a15.5 in minitorch/data/cleaning/classifier.py: a last text without words."""

RIGHT = "sums = vectors.new_zeros(len(counts), vectors.shape[1])"
WRONG = "sums = vectors.new_zeros(int(owners.max().item()) + 1, vectors.shape[1])"
