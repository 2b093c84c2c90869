"""a4.6 in divergence.py: a warp pays for the side that most of its lanes take."""


def branch_cost(conditions, then, other, warp=WARP):
    total = 0
    for first in range(0, len(conditions), warp):
        lanes = conditions[first : first + warp]
        total += then if 2 * sum(lanes) >= len(lanes) else other
    return total
