"""a11.2 in fast_ops/attention.py: a last block that is shorter is left out."""

RIGHT = """
    for k0 in range(0, last, KEYS):
        keys, edge = min(KEYS, last - k0), k0 - q0 if causal else NEVER
        _fetch(key[k0 * k_row :], k_row, keys, E, keys_here)
        _fetch(value[k0 * v_row :], v_row, keys, V, values_here)
        _score(keys_here, keys, E, packed, lines, edge, scores)
"""

WRONG = """
    for k0 in range(0, max(1, last // KEYS) * KEYS, KEYS):
        keys, edge = min(KEYS, last - k0), k0 - q0 if causal else NEVER
        _fetch(key[k0 * k_row :], k_row, keys, E, keys_here)
        _fetch(value[k0 * v_row :], v_row, keys, V, values_here)
        _score(keys_here, keys, E, packed, lines, edge, scores)
"""
