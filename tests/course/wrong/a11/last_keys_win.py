"""a11.3 in fast_ops/attention.py: the last block of keys is all dq gets."""

RIGHT = "_weigh(slopes, lines, keys, edge, keys_here, E, dq, dq_row, k0 > 0)"
WRONG = "_weigh(slopes, lines, keys, edge, keys_here, E, dq, dq_row, False)"
