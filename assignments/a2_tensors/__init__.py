"""a2, Tensors: many numbers in one memory, and the derivatives of operations."""
