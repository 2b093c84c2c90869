"""a16.1 in minitorch/scaling.py: queries, keys and values, and nothing behind them."""

RIGHT = "4 * width * width"
WRONG = "3 * width * width"
