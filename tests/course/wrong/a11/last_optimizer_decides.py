"""a11.5 in minitorch/amp/grad_scaler.py: only the last optimizer counts."""

RIGHT = "any(found for _, found in self._stages.values())"
WRONG = "[found for _, found in self._stages.values()][-1]"
