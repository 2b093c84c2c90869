"""a4w, GPU warm-up: ten kernels of a few lines."""
