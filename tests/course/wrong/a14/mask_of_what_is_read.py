"""a14.1 in minitorch/alignment.py: a place counts if its own token is an answer's."""

RIGHT = "for t in range(1, longest)"
WRONG = "for t in range(longest - 1)"
