"""a17.2 in minitorch/nn/utils/prune.py: the scores that are given are not used."""

RIGHT = "given.get((m, n), getattr(m, n)).detach()"
WRONG = "getattr(m, n).detach()"
