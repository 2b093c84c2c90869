"""a17.5 in minitorch/distillation.py: how far the teacher is from the student."""

RIGHT = "F.kl_div(q, p,"
WRONG = "F.kl_div(p, q,"
