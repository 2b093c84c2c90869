"""a11.5 in minitorch/amp/grad_scaler.py: a skipped step does not count."""

RIGHT = """
            optimizer.steps_taken += 1"""
WRONG = """
            optimizer.steps_taken += 0"""
