"""a10.2 in minitorch/functions/attention.py: NaN is replaced at the end."""


def _masked_softmax(scores, mask):
    if mask.dtype.category == 0:
        scores = where(mask, scores, NEVER)
    else:
        scores = scores + mask
    none = (scores == NEVER).all(-1, keepdim=True)
    return softmax(scores, -1).masked_fill(none, 0.0)
