"""a11.2 in fast_ops/attention.py: keeps the weights of all keys."""

RIGHT = """
    top[:] = -np.inf
    total[:] = 0
    for k0 in range(0, last, KEYS):
        keys, edge = min(KEYS, last - k0), k0 - q0 if causal else NEVER
"""

WRONG = """
    top[:] = -np.inf
    total[:] = 0
    weights = np.empty((last + KEYS) * QUERIES + ROOM, scores.dtype)
    for k0 in range(0, last, KEYS):
        keys, edge = min(KEYS, last - k0), k0 - q0 if causal else NEVER
        scores = weights[k0 * QUERIES : k0 * QUERIES + BLOCK]
"""
