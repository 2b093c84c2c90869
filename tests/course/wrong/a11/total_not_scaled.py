"""a11.1 in fast_ops/attention.py: the old sum is not brought to the new maximum."""

RIGHT = "total[q] = total[q] * decay[q] + sums[q]"
WRONG = "total[q] = total[q] + sums[q]"
