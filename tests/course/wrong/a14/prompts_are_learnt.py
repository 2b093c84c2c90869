"""a14.1 in minitorch/alignment.py: prompts and what fills up are learnt, too."""

RIGHT = "ids[:, 1:].masked_fill(~mask, -1)"
WRONG = "ids[:, 1:]"
