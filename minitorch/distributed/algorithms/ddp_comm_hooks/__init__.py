"""How DistributedDataParallel brings gradients together, if not as they are.

default_hooks       as they are, or in half the bytes
powerSGD_hook       as products of thin matrices
"""
