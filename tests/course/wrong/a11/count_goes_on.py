"""a11.5 in minitorch/amp/grad_scaler.py: the count goes on after a skipped step."""

RIGHT = "scale, self._growth_tracker = _float32(scale * self._backoff_factor), 0"
WRONG = "scale = _float32(scale * self._backoff_factor)"
