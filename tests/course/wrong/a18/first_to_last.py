"""a18.1 in minitorch/serving/blocks.py: a text's first block is forgotten first."""

RIGHT = "for block in reversed(blocks):"
WRONG = "for block in blocks:"
