"""a13.1 in minitorch/distributed/classroom.py: each waits until its message is
taken, and listens then."""

RIGHT = """\
        works = [isend(going, right, self.group)] if going.numel() else []
"""
WRONG = """\
        works = [isend(going, right, self.group)] if going.numel() else []
        for work in works:
            work.wait()
"""
