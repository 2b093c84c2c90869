"""a12.4 in fast_ops/fused.py: parts of a sum over all lose their digits."""

RIGHT = """{total if whole else f'{program.step_kind(k)}({total})'}"""
WRONG = """{program.step_kind(k)}({total})"""
