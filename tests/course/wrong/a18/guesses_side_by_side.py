"""a18.5 in minitorch/models/speculative.py: each guess stands behind the text."""

RIGHT = "small.expects(text + guesses)[-1]"
WRONG = "small.expects(text)[-1]"
