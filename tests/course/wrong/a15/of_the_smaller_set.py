"""a15.2 in minitorch/data/cleaning/duplicates.py: of the smaller one."""

RIGHT = "return len(a & b) / len(a | b) if a or b else 1.0"
WRONG = (
    "return len(a & b) / min(len(a), len(b)) if a and b else float(len(a) == len(b))"
)
