"""a18.5 in minitorch/models/speculative.py: what takes its place is drawn from p."""

RIGHT = "draw(np.maximum(large[i] - small[i], 0.0), uniform)"
WRONG = "draw(large[i], uniform)"
