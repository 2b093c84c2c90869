"""a15.4 in minitorch/data/cleaning/rules.py: a word counts if all of it is letters."""

RIGHT = "any(map(str.isalpha, word))"
WRONG = "all(map(str.isalpha, word))"
