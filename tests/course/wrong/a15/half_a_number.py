"""a15.4 in minitorch/data/cleaning/masks.py: ten digits of eleven are a number."""

RIGHT = '[0-9]{{4}}(?!\\w)"'
WRONG = '[0-9]{{4}}"'
