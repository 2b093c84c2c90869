"""a11.4 in cuda_ops/half.py: of two as near, the odd one."""


@device
def to_bfloat16(x):
    word = word_of(x)
    if x != x:
        return uint16((word >> uint32(16)) | uint32(0x40))
    odd = (word >> uint32(16)) & uint32(1)
    return uint16((word + uint32(0x8000) - odd) >> uint32(16))
