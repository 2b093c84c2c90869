"""a10.4 in minitorch/data/text/windows.py: a model is asked for what it reads."""

RIGHT = "            from_numpy(windows[..., 1:].copy()),\n"
WRONG = "            from_numpy(windows[..., :-1].copy()),\n"
