"""a18.2 in minitorch/serving/blocks.py: the last block has a key before it is full."""

RIGHT = "len(tokens) + 1, block_size):"
WRONG = "len(tokens) + block_size, block_size):"
