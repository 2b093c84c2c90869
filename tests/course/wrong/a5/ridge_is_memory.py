"""a5.6 in roofline.py: at the ridge it is said to be the memory."""


def limit(intensity, peak, bandwidth):
    return "memory" if intensity * bandwidth <= peak else "arithmetic"
