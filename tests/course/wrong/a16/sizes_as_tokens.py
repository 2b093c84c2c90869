"""a16.3 in minitorch/scaling.py: the law of D is that of N."""

RIGHT = "tokens_for(budget, best)"
WRONG = "best"
