"""a11.4 in minitorch/simple_ops/half.py: a half is always rounded up."""


def to_bfloat16(word):
    if word & 0x7FFFFFFF > 0x7F800000:
        return (word >> 16) | 0x40
    return (word + 0x8000) >> 16
