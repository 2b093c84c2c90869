"""a18.1 in minitorch/serving/blocks.py: where there are too few, those are taken."""

RIGHT = "if count > len(self._free):"
WRONG = "if count > len(self._free) + 1:"
