"""a17.3 in minitorch/nn/sparse.py: of four that are equal none is kept."""

RIGHT = "(other > mine) | ((other == mine) & before)"
WRONG = "(other > mine) | (other == mine) & (place != place.unsqueeze(1))"
