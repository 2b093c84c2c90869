"""a17.2 in minitorch/nn/utils/prune.py: all as small as the last one go."""

RIGHT = """\
        mask = default_mask.flatten().clone()
        mask[t.abs().flatten().topk(count, largest=False).indices] = 0
        return mask.reshape(t.shape)"""

WRONG = """\
        if count == 0:
            return default_mask.clone()
        bar = t.abs().flatten().sort()[0][count - 1]
        return default_mask * (t.abs() > bar).to(default_mask.dtype)"""
