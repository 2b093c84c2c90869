"""a11.4 in minitorch/simple_ops/half.py: cuts off instead of rounding."""


def to_bfloat16(word):
    if word & 0x7FFFFFFF > 0x7F800000:
        return (word >> 16) | 0x40
    return word >> 16
