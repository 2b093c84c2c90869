"""a9, Mojo: kernels in another language, on the same tensors."""
