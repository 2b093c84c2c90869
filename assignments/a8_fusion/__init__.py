"""a8, Fusion: several operations in one pass over memory."""
