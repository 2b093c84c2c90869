"""a15.3 in minitorch/data/cleaning/duplicates.py: the largest stands for all."""

RIGHT = "leader[high] = low"
WRONG = "leader[low] = high"
