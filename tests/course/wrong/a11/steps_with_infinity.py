"""a11.5 in minitorch/amp/grad_scaler.py: no step is skipped."""

RIGHT = """
        if found:
            optimizer.steps_taken += 1"""
WRONG = """
        if found and not self._stages:
            optimizer.steps_taken += 1"""
