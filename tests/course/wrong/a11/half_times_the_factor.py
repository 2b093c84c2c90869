"""a11.5 in minitorch/amp/grad_scaler.py: a loss in float16 stays in float16."""

RIGHT = "return outputs * outputs.new_tensor(self._scale, dtype=float32)"
WRONG = "return outputs * self._scale"
