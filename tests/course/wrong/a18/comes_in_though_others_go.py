"""a18.4 in minitorch/serving/engine.py: who waits comes in as another is sent back."""

RIGHT = """\
        if self._preempted == preempted:
            chunks"""
WRONG = """\
        if self._preempted >= preempted:
            chunks"""
