"""a18.4 in minitorch/serving/engine.py: nothing is set aside for who writes."""

RIGHT = "budget = self.max_tokens - sum(text.left == 1 for text in self.running)"
WRONG = "budget = self.max_tokens"
