"""a12.6 in minitorch/compiler/recorder.py: no program is long enough."""

RIGHT = (
    "        if len(self.steps) >= MOST_STEPS or count + len(operands) > MOST_INPUTS:"
)
WRONG = "        if count + len(operands) > MOST_INPUTS:"
