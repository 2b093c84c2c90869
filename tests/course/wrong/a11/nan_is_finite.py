"""a11.5 in minitorch/amp/grad_scaler.py: looks for infinity, and not for NaN."""

RIGHT = "finite.append(grad.isfinite().all())"
WRONG = "finite.append((grad.abs() != math.inf).all())"
