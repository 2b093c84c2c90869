"""a18.2 in minitorch/serving/blocks.py: a key of the block's own tokens."""

RIGHT = 'before = keys[-1] if keys else b""'
WRONG = 'before = b""'
