"""a17.5 in minitorch/distillation.py: only the student has a temperature."""

RIGHT = "for a in (student, teacher.detach()))"
WRONG = "for a in (student, teacher.detach() * temperature))"
