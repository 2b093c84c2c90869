"""a18.4 in minitorch/serving/engine.py: nothing is left to read."""

RIGHT = "text.keys[: (len(text.tokens) - 1) // size]"
WRONG = "text.keys[: len(text.tokens) // size]"
