"""a18.4 in minitorch/serving/engine.py: who came first gives back."""

RIGHT = "last = self.running.pop()"
WRONG = "last = self.running.pop(0)"
