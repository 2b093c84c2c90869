"""a17.2 in minitorch/nn/utils/prune.py: scores are the whole module's."""

RIGHT = "given.get((m, n), getattr(m, n))"

WRONG = "{k[0]: v for k, v in given.items()}.get(m, getattr(m, n))"
