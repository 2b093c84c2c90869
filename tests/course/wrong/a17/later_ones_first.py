"""a17.3 in minitorch/nn/sparse.py: of equal ones the last are kept."""

RIGHT = "place < place.unsqueeze(1)"
WRONG = "place > place.unsqueeze(1)"
