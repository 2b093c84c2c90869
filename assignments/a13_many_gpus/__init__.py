"""a13: many GPUs."""
