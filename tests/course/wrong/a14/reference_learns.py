"""a14.3 in minitorch/alignment.py: a gradient goes to the reference."""

RIGHT = "chosen - reference_chosen.detach()"
WRONG = "chosen - reference_chosen"
