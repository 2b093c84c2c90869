"""a16.1 in minitorch/scaling.py: the head does not count."""

RIGHT = "layers * block + vocab_size * width"
WRONG = "layers * block"
