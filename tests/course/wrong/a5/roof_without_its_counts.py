"""a5.6 in roofline.py: operations and bytes change places."""


def roofline(size, block, peak, bandwidth, itemsize=4):
    work, moved = flops(*size), traffic(*size, *block, itemsize)
    intensity = work / moved
    attainable = min(peak, intensity * bandwidth)
    return Roof(moved, work, intensity, attainable, limit(intensity, peak, bandwidth))
