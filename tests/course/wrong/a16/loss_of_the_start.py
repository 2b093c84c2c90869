"""a16.4 in minitorch/scaling.py: what the first call of the closure returned."""

RIGHT = """\
    optimizer.step(closure)
"""

WRONG = """\
    return optimizer.step(closure).item()
"""
