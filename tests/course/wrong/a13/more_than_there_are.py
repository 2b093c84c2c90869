"""a13.6 in minitorch/distributed/planner/memory.py: a stage holds more micro-batches
than there are."""

RIGHT = "    return min(layout.micro_batches, most)"
WRONG = "    return most"
