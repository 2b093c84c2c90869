"""a17.4 in smaller.py: ReLU is left out of what the next layer meets."""

RIGHT = """\
        x = layer(x)
"""
WRONG = """\
        x = layer(x) if isinstance(layer, QuantizedLinear) else x
"""
