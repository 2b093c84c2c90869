"""a5.6 in roofline.py: the larger one of the two limits."""


def roofline(size, block, peak, bandwidth, itemsize=4):
    work, moved = flops(*size), traffic(*size, *block, itemsize)
    intensity = work / moved
    attainable = max(peak, intensity * bandwidth)
    return Roof(work, moved, intensity, attainable, limit(intensity, peak, bandwidth))
