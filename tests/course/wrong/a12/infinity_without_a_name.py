"""a12.2 in minitorch/backend/fusion.py: an infinity that Python does not know."""

RIGHT = """repr(float(self.steps[k].fold_start or 0.0)).replace("inf", "np.inf")"""
WRONG = """repr(float(self.steps[k].fold_start or 0.0))"""
