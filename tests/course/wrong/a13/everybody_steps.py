"""a13.3 in minitorch/distributed/optim.py: each rank steps on all parameters."""

RIGHT = '[p for p in group["params"] if self.owns(p)]'
WRONG = 'list(group["params"])'
