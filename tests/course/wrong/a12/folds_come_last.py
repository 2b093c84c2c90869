"""a12.4 in fast_ops/fused.py: what is made of a fold comes before it."""

RIGHT = "    here = [k for k, found in enumerate(levels) if found == level]"
WRONG = """    here = [k for k, found in enumerate(levels) if found == level]
    here.sort(key=lambda k: program.steps[k].fold_start is not None)"""
