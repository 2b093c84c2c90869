"""a11.2 in fast_ops/attention.py: what earlier blocks gave keeps its old maximum."""

RIGHT = """
        if k0 > 0:
            _scale_rows(out, out_row, lines, V, decay)
"""

WRONG = "\n"
