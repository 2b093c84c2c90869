"""a3, Parallel CPU: kernels by Numba on all cores."""
