"""a12.6 in minitorch/compiler/recorder.py: an id is taken for what had it before."""

RIGHT = (
    "            if k is not None and self.made[k]() is storage:  # yet to be written"
)
WRONG = "            if k is not None:"
