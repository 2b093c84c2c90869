"""a17.5 in minitorch/distillation.py: the teacher gets a gradient."""

RIGHT = "teacher.detach()"
WRONG = "teacher"
