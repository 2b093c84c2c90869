"""a10.2 in minitorch/functions/attention.py: query head h looks at head h % heads."""


def _for_all_heads(query, x):
    many, few = query.raw.shape[-3], x.raw.shape[-3]
    if many == few:
        return x
    wide = x.unsqueeze(-4).expand(*x.shape[:-3], many // few, *x.shape[-3:])
    return wide.flatten(-4, -3)
