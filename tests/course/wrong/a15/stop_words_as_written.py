"""a15.4 in minitorch/data/cleaning/rules.py: The is no stop word."""

RIGHT = "{word.lower() for word in words}"
WRONG = "{word for word in words}"
