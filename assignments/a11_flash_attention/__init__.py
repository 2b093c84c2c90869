"""a11, FlashAttention: attention in blocks, and numbers of 16 bits."""
