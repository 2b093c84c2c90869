"""a18.3 in minitorch/serving/cache.py: slots of texts without their tables."""

RIGHT = "tables[every, block] * self.block_size + slot"
WRONG = "block * self.block_size + slot"
