"""The GPU backend: Numba CUDA kernels, one file a family.

`cuda_ops.backend` is what `minitorch` loads for the device "cuda". The kernel files can
be imported on any machine, to be read, compiled and inspected; a GPU, or Numba's
simulator (`NUMBA_ENABLE_CUDASIM=1`), is needed to run them.
"""
