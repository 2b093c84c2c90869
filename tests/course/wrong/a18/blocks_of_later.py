"""a18.3 in minitorch/serving/cache.py: a table has blocks without tokens."""

RIGHT = "            used = blocks[: -(-(first + count) // self.block_size)]"
WRONG = "            used = blocks"
