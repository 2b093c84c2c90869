"""Reaches NumPy through a function of the library."""

from minitorch import tensor_data

numpy = tensor_data.TensorData.__init__.__globals__["np"]


def scale(x):
    return numpy.multiply(2, x) + numpy.float32(1)


def running(x):
    return numpy.cumsum(x, dtype="float64").astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
