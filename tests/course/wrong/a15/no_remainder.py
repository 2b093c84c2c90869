"""a15.2 in minitorch/data/cleaning/duplicates.py: the smallest comes too early."""

RIGHT = "(some % np.uint64(PRIME)).min(1)"
WRONG = "some.min(1) % np.uint64(PRIME)"
