"""a18.4 in minitorch/serving/engine.py: prompts are read as a whole."""

RIGHT = """\
            count = min(text.left, budget)
            budget -= count
            yield"""
WRONG = """\
            count = text.left
            budget -= count
            yield"""
