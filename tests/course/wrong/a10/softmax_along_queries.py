"""a10.2 in minitorch/functions/attention.py: each column adds up to 1, not each row."""

RIGHT = """        return _masked_softmax(scores, attn_mask)
    return softmax(scores, -1)
"""
WRONG = """        return _masked_softmax(scores, attn_mask)
    return softmax(scores, -2)
"""
