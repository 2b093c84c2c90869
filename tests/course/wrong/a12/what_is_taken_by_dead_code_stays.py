"""a12.1 in minitorch/backend/fusion.py: a step stays if anything takes its result."""

RIGHT = """    for k in reversed(range(len(steps))):
        if k in wanted:
            wanted.update(arg for arg in steps[k].args if arg >= 0)"""
WRONG = """    for step in steps:
        wanted.update(arg for arg in step.args if arg >= 0)"""
