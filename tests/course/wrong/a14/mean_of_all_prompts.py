"""a14.4 in minitorch/alignment.py: the mean of all answers, whatever their prompt."""

RIGHT = "rewards - rewards.mean(1, keepdim=True)"
WRONG = "rewards - rewards.mean()"
