"""a13.5 in minitorch/distributed/pipelining/schedules.py: a backward pass needs the
stage behind alone."""

RIGHT = '    return [("F", stage, microbatch), *behind]'
WRONG = "    return behind"
