"""a14.6 in sums.py: what was good becomes less probable."""

RIGHT = "advantages = group_advantages(wrote.rewards).flatten()"
WRONG = "advantages = -group_advantages(wrote.rewards).flatten()"
