"""a6.5 in minitorch/simple_ops/random.py: what is kept stays as it is."""


def dropout(x, p, seed, offset):
    values = read(x)
    for i, word in enumerate(words(len(values), seed, offset)):
        values[i] = values[i] if word >= p * 2**32 else 0.0
    return tensor(values, x.shape, x.dtype)
