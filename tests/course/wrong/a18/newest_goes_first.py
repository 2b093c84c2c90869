"""a18.1 in minitorch/serving/blocks.py: what was given back last is taken first."""

RIGHT = "self._free.popitem(last=False)"
WRONG = "self._free.popitem(last=True)"
