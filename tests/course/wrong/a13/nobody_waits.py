"""a13.2 in minitorch/nn/parallel/reducer.py: the sums are not waited for."""

RIGHT = """\
            result: Any = bucket.work.wait()
            if self.hook is not None:
                bucket.set_buffer(result)
"""
WRONG = """\
            if self.hook is not None:
                bucket.set_buffer(bucket.flat)
"""
