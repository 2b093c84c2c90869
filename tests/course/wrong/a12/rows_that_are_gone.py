"""a12.1 in minitorch/backend/fusion.py: rows, though nothing is one number a row."""

RIGHT = "    folded = program.folded if any(step.per_row for step in rest) else 0"
WRONG = "    folded = program.folded"
