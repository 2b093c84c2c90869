"""a18.2 in minitorch/serving/blocks.py: the second block with a key takes it over."""

RIGHT = "if block not in self._keys and key not in self._known:"
WRONG = "if block not in self._keys:"
