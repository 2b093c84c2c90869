"""a13.2 in minitorch/nn/parallel/reducer.py: nothing is computed while it is sent."""

RIGHT = "ReduceOp.AVG, group, async_op=True)\n"
WRONG = "ReduceOp.AVG, group, async_op=True)\n        bucket.work.wait()\n"
