"""a11.4 in minitorch/simple_ops/half.py: some NaN become infinite, others zero."""


def to_bfloat16(word):
    odd = (word >> 16) & 1
    return ((word + 0x7FFF + odd) >> 16) & 0xFFFF
