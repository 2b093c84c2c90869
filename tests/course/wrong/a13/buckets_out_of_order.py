"""a13.2 in minitorch/nn/parallel/reducer.py: a bucket goes as soon as it is full."""

RIGHT = """\
        while self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
            self._send(self.buckets[self.sent])
            self.sent += 1
"""
WRONG = """\
        if not bucket.missing:
            self._send(bucket)
            self.sent += 1
"""
