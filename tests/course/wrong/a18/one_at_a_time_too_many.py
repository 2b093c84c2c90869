"""a18.4 in minitorch/serving/engine.py: one more than may run."""

RIGHT = "len(self.running) < self.max_batch"
WRONG = "len(self.running) <= self.max_batch"
