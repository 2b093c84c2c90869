"""a12.4 in fast_ops/fused.py: each result lies in memory, needed or not."""

RIGHT = "    stored = _stored(program)\n"
WRONG = """    stored = _stored(program)
    stored |= {k for k, step in enumerate(steps) if not step.per_row}
"""
