"""a12.4 in fast_ops/fused.py: what is one number a row is not written."""

RIGHT = """    lines += [f"z{k}_[line] = y{k}" for k in kept if steps[k].per_row]
"""
WRONG = ""
