"""a17.3 in minitorch/nn/sparse.py: the sign of a byte is taken for its highest bits."""

RIGHT = "places.to(int64).unsqueeze(2) // units % 4"
WRONG = "places.to(int64).abs().unsqueeze(2) // units % 4"
