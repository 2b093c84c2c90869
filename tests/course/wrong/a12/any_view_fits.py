"""a12.6 in minitorch/compiler/recorder.py: a transposed view is taken as it is."""

RIGHT = "            return a.contiguous"
WRONG = "            return True"
