"""a17.4 in smaller.py: each layer is followed by ReLU."""

RIGHT = """\
        x = layer(x)
    return made"""

WRONG = """\
        x = layer(x).relu()
    return made"""
