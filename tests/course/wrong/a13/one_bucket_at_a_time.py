"""a13.2 in minitorch/nn/parallel/reducer.py: after a gradient at most one bucket
goes."""

RIGHT = """\
        while self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
"""
WRONG = """\
        if self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
"""
