"""a13.2 in minitorch/nn/parallel/reducer.py: what was not used sends what the last
step left."""

RIGHT = "            place.zero_()"
WRONG = "            pass"
