"""a18.5 in minitorch/models/speculative.py: a weight of 0 can be drawn."""

RIGHT = 'uniform() * ends[-1], side="right"'
WRONG = '(1 - uniform()) // 1 * ends[-1], side="left"'
