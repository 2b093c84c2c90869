"""a15.4 in minitorch/data/cleaning/rules.py: blank lines count."""

RIGHT = 'lines = [line.strip() for line in text.split("\\n") if line.strip()]'
WRONG = 'lines = [line.strip() for line in text.split("\\n")]'
