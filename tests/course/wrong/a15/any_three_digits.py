"""a15.4 in minitorch/data/cleaning/masks.py: 999 is a number of an address."""

RIGHT = '    byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"\n'
WRONG = '    byte = "[0-9]{1,3}"\n'
