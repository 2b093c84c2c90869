"""a17.4 in smaller.py: layers are fed by those that were not rounded."""

RIGHT = """\
        if isinstance(layer, nn.Linear):
            layer = held(layer, *round_with_feedback(layer.weight, x, bits))
        made.append(layer)
"""
WRONG = """\
        old = layer
        if isinstance(layer, nn.Linear):
            layer = held(layer, *round_with_feedback(layer.weight, x, bits))
        made.append(layer)
        layer = old
"""
