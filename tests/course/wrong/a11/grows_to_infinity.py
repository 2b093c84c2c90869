"""a11.5 in minitorch/amp/grad_scaler.py: the factor grows without a limit."""

RIGHT = "scale = scale if math.isinf(larger) else larger"
WRONG = "scale = larger"
