"""a10.6 in minitorch/models/generation.py: a text is cut, its padding is not."""

RIGHT = "padding = self._padding(np.maximum(self.padding - cut, 0))"
WRONG = "padding = self._padding(self.padding)"
