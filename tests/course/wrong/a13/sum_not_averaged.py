"""a13.2 in minitorch/nn/parallel/reducer.py: gradients are added up, and not
averaged."""

RIGHT = "ReduceOp.AVG, group, async_op=True)"
WRONG = "ReduceOp.SUM, group, async_op=True)"
