"""Norms by the names of `torch.linalg`.

With this file one can write `linalg.norm(x)` and `linalg.vector_norm(x, 1)`. For what
else PyTorch has there, an error says how to ask NumPy.
"""

from typing import TYPE_CHECKING, Any

from minitorch import absent
from minitorch.arguments import dims_of
from minitorch.functions import reduce
from minitorch.tensor import Tensor


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The norm of order 1, 2 or inf over one, several or all dims: `Tensor.norm`."""
    return reduce.norm(x, ord, dim, keepdim)


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Tensor:
    """`vector_norm` over one dim; "fro" over two; None: 2, over all that `dim` says."""
    count = 1 if isinstance(dim, int) else len(dim or range(dims_of("norm", A)))
    if ord is not None and count != 1 + (ord == "fro"):
        raise ValueError(
            f"linalg.norm: ord is {ord!r} over {count} dims; expected 1, 2 or inf over "
            f'one, or "fro" over two. NumPy has other norms of matrices'
        )
    return vector_norm(A, 2 if ord in (None, "fro") else ord, dim, keepdim)


if not TYPE_CHECKING:  # for which a name that is not there stays an error
    __getattr__ = absent.explain(__name__)
