"""a13.4 in minitorch/distributed/tensor/placement.py: blocks are cut as if they were
one."""

RIGHT = """\
        for size in self.blocks:
"""
WRONG = """\
        for size in [sum(self.blocks)]:
"""
