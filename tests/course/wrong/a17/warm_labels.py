"""a17.5 in minitorch/distillation.py: the labels are met with the temperature, too."""

RIGHT = "F.cross_entropy(student, target)"
WRONG = "F.cross_entropy(student / temperature, target)"
