"""a12.2 in minitorch/backend/fusion.py: of a fold's start six digits are left."""

RIGHT = """repr(float(self.steps[k].fold_start or 0.0)).replace("inf", "np.inf")"""
WRONG = """f"{self.steps[k].fold_start or 0.0:g}".replace("inf", "np.inf")"""
