"""a7, Sparse matrices: what is not zero, and who works on it."""
