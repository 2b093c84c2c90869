"""What PyTorch has and this library has not, and what to write instead.

With this file `minitorch.nn.UpsamplingNearest2d` is an error that says how to go on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

COMPLEX = "there are no complex numbers; keep the real and the imaginary part apart"
CREATE = "use tensor(data, dtype=...), or empty(sizes)"
NUMPY = "ask NumPy, without gradients: tensor(numpy.linalg.solve(a.numpy(), b.numpy()))"
PASS = "there is no such default; pass dtype= and device=, or call .to(...)"
SHORT = "ints are int64, int32 or int8; use one of these, or bool"
INSTEAD = {
    **dict.fromkeys(("complex", "complex64", "fft", "polar"), COMPLEX),
    **dict.fromkeys(("BoolTensor", "DoubleTensor", "IntTensor"), CREATE),
    **dict.fromkeys(("cholesky", "det", "eigh", "inv", "inverse", "logdet"), NUMPY),
    **dict.fromkeys(("matrix_norm", "pinverse", "qr", "slogdet", "solve"), NUMPY),
    "svd": NUMPY,
    "vmap": "write the batch as a dimension; operations broadcast",
    **dict.fromkeys(("int16", "short", "uint8"), SHORT),
    **dict.fromkeys(("get_default_dtype", "set_default_device"), PASS),
    **dict.fromkeys(("set_default_dtype", "set_default_tensor_type"), PASS),
    **dict.fromkeys(("UpsamplingBilinear2d", "UpsamplingNearest2d"), "use nn.Upsample"),
    "Bilinear": "use einsum('...i,oij,...j->...o', x1, weight, x2) + bias",
    "EmbeddingBag": "use nn.Embedding, and sum, mean or index_add_",
    "detect_anomaly": "ask isfinite(x).all() where a NaN may come from",
    "func": "use autograd.grad, with create_graph=True for higher derivatives",
    "jit": "use minitorch.compile, or leave it out",
    "set_num_threads": "set NUMBA_NUM_THREADS before the program starts",
    "use_deterministic_algorithms": "leave it out: every run gives the same numbers",
}


def error(module: str, name: str) -> AttributeError:
    """What a module raises for a name that it does not have."""
    message = f"module {module!r} has no attribute {name!r}"
    if name in INSTEAD:
        message += f": it is not offered here; {INSTEAD[name]}"
    elif not name.startswith("_"):  # for such names Python and its tools ask often
        from difflib import get_close_matches

        if close := get_close_matches(name, dir(sys.modules[module]), 3, 0.75):
            message += f"; did you mean {' or '.join(map(repr, close))}?"
    return AttributeError(message)


def explain(module: str) -> Callable[[str], object]:
    """The `__getattr__` of a module."""

    def missing(name: str) -> object:
        raise error(module, name)

    return missing
