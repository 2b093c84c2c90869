"""a12.6 in minitorch/compiler/recorder.py: a step of another shape joins."""

RIGHT = "        if per_row or (shape == self.shape and device == self.device):"
WRONG = "        if self.steps and device == self.device:"
