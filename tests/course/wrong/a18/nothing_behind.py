"""a18.5 in minitorch/models/speculative.py: a guess takes the last place, too."""

RIGHT = "return [*guesses, draw(large[-1], uniform)]"
WRONG = "return [*guesses, draw(large[0], uniform)]"
