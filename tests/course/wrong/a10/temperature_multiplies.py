"""a10.5 in minitorch/models/generation.py: scores times the temperature."""

RIGHT = "scores = scores / self.temperature"
WRONG = "scores = scores * self.temperature"
