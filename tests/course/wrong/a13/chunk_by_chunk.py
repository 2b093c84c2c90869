"""a13.5 in minitorch/distributed/pipelining/schedules.py: all micro-batches go
through a chunk before the next."""

RIGHT = """\
        for first in range(0, microbatches, stages)
        for chunk in range(chunks)
"""
WRONG = """\
        for chunk in range(chunks)
        for first in range(0, microbatches, stages)
"""
