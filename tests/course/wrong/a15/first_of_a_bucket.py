"""a15.3 in minitorch/data/cleaning/duplicates.py: pairs with the first alone."""

RIGHT = "pairs.update(combinations(bucket, 2))"
WRONG = "pairs.update((bucket[0], i) for i in bucket[1:])"
