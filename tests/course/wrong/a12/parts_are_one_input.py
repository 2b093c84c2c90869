"""a12.6 in minitorch/compiler/recorder.py: two rows of a tensor are one input."""

RIGHT = "            key = id(storage), a.shape, a.strides, a.offset"
WRONG = "            key = id(storage), a.shape, a.strides"
