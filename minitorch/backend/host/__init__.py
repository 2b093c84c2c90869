"""Backends whose tensors are NumPy arrays in the processor's memory.

With this package such a backend is a list of *flat kernels*: functions on arrays
without gaps and on integers. What comes before a kernel is the same for all of them and
stands here once: copies of what has gaps, the reduced dimension moved last, empty
tensors, room for results, weights that may be missing, checks of indices, and whether
the work is worth waking all threads.

Each file has the launchers of a family, a class whose docstring or file's head names
its kernels and their arguments; `HostBackend` is all of them. The kernels of a family
are the attributes of one object, which a backend keeps under the family's name
(`_norm`, `_softmax`, ...). Each is a pair, for one thread and for all. Arrays come
flat, tell their own types and lengths, and are allocated here; results go last.

"cpu" (`fast_ops`, Numba) and "mojo" (`mojo_ops`) are such backends.
"""

from minitorch.backend.host.backend import HostBackend as HostBackend
