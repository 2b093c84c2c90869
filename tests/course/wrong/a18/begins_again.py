"""a18.2 in minitorch/serving/blocks.py: keys that are there are added again."""

RIGHT = "range((len(keys) + 1) * block_size,"
WRONG = "range(block_size,"
