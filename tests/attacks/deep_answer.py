"""Returns lists in lists, and some that contain themselves."""


def scale(x):
    out = []
    for _ in range(100_000):
        out = [out]
    return out


def running(x):
    out = []
    out.append(out)
    return out
