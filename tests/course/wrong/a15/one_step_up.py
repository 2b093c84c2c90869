"""a15.3 in minitorch/data/cleaning/duplicates.py: leaders of leaders are forgotten."""

RIGHT = "return [first(i) for i in range(count)]"
WRONG = "return leader"
