"""a18.1 in minitorch/serving/blocks.py: a block that is full has one behind it."""

RIGHT = "return -(-tokens // self.block_size)"
WRONG = "return tokens // self.block_size + 1"
