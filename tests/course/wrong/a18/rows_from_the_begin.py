"""a18.5 in minitorch/models/speculative.py: rows behind the first tokens judge."""

RIGHT = "large.expects(text + guesses)[-ahead - 1 :]"
WRONG = "large.expects(text + guesses)[: ahead + 1]"
