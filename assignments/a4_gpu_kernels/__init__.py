"""a4, GPU kernels: grids of threads, guards, shared memory and barriers."""
