"""a12.1 in minitorch/backend/fusion.py: what is kept has its old numbers."""

RIGHT = "    kept = tuple([number[k] for k in program.kept])"
WRONG = "    kept = program.kept"
