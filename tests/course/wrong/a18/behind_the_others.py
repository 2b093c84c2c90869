"""a18.4 in minitorch/serving/engine.py: who was sent back waits behind all."""

RIGHT = "self.waiting.appendleft(last)"
WRONG = "self.waiting.append(last)"
