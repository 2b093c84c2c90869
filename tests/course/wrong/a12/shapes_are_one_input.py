"""a12.6 in minitorch/compiler/recorder.py: a tensor and its first row are one input."""

RIGHT = "            key = id(storage), a.shape, a.strides, a.offset"
WRONG = "            key = id(storage), a.strides, a.offset"
