"""a10.3 in minitorch/models/gpt.py: the second half of the units are the gates."""

RIGHT = "x = F.silu(gate) * up"
WRONG = "x = gate * F.silu(up)"
