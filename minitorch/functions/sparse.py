"""Operations on matrices in compressed sparse rows, and their gradients.

With this file one can see that the product of a sparse matrix A and a dense one has two
gradients of the same kind: A^T times the gradient, for the dense one, and a dense
product that is computed only where A has elements, for A's values. `CSRMatMul` and
`CSRSample` are each other's derivatives, so gradients of any order cost what the
non-zeros cost.

A's values are a tensor [nnz] like any other. Where they stand is a `CSRPattern`, which
has no gradient and keeps its transposed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from minitorch.executor import host_read
from minitorch.function import Context, Function
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Transposed(NamedTuple):
    """A transposed pattern, and how the values move: new[p] = old[order[p]]."""

    pattern: CSRPattern
    order: Tensor
    inverse: Tensor  # old[p] = new[inverse[p]]


class CSRPattern:
    """Where the stored elements of a matrix stand: row i has columns col[crow[i]: ...].

    crow [rows + 1] and col [nnz] are integer tensors whose bounds have been checked
    (`minitorch.sparse_csr_tensor` does); they must not be changed any more.

    Attributes:
        shape: (rows, cols)
    """

    __slots__ = (
        "__weakref__",
        "_origin",
        "_transposed",
        "_versions",
        "col",
        "crow",
        "shape",
    )

    def __init__(self, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self.crow, self.col, self.shape = crow, col, shape
        self._versions = (crow.raw.storage.version, col.raw.storage.version)
        self._transposed: Transposed | None = None
        self._origin: tuple[weakref.ref[CSRPattern], Tensor, Tensor] | None = None

    @property
    def nnz(self) -> int:
        """How many elements are stored."""
        return self.col.raw.shape[0]

    def indices(self) -> tuple[TensorData, TensorData]:
        """crow and col for a backend, which trusts them.

        Raises:
            RuntimeError: one was changed in place since it was checked.
        """
        crow, col = self.crow.raw, self.col.raw
        if (crow.storage.version, col.storage.version) != self._versions:
            raise RuntimeError(
                "sparse: crow_indices or col_indices were changed in place; make a new "
                "matrix with sparse_csr_tensor, which checks them"
            )
        return crow, col

    def transposed(self) -> Transposed:
        """The pattern of the transposed matrix; computed once, then kept.

        The transposed of the transposed is this very pattern. It holds no strong
        reference to this one: two that hold each other would not be freed at once.
        """
        if self._origin is not None:
            origin = self._origin[0]()
            if origin is not None:
                return Transposed(origin, *self._origin[1:])
        if self._transposed is None:
            self._transposed = self._transpose()
        return self._transposed

    def _transpose(self) -> Transposed:
        rows, cols = self.shape
        backend, wrap = self.crow.backend, self.crow.wrap
        crow, col, order = map(wrap, backend.csr_transpose(*self.indices(), cols))
        places = order.arange_like()
        inverse = wrap(backend.empty(order.raw.shape, order.dtype))
        backend.index_copy_(inverse.raw, 0, order.raw, places.raw)
        pattern = CSRPattern(crow, col, (cols, rows))
        pattern._origin = (weakref.ref(self), inverse, order)
        return Transposed(pattern, order, inverse)


class CSRMatMul(Function):
    """out = A @ b, that is out[i, j] = sum of values[p] b[col[p], j] over p in row i

    From d out[i, j] / d values[p] = b[col[p], j] follows
    grad_values[p] = sum_j grad[i, j] b[col[p], j]: the product grad @ b^T that a dense
    A would get, at A's places only (`CSRSample`). As for a dense A,
    grad_b = A^T @ grad.

    A [M, K] @ b [K, N] -> out [M, N]
    """

    @staticmethod
    def forward(ctx: Context, values: Tensor, b: Tensor, pattern: CSRPattern) -> Any:
        ctx.save_for_backward(values, b)
        ctx.pattern = pattern
        return b.backend.csr_matmul(*pattern.indices(), values.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # BEGIN SOLUTION a7.4
        values, b = ctx.saved_tensors
        pattern: CSRPattern = ctx.pattern
        need_values, need_b, _ = ctx.needs_input_grad
        grad = grad.contiguous()  # once for both products
        to_values = CSRSample.apply(grad, b, pattern) if need_values else None
        to_b = transposed_matmul(values, grad, pattern) if need_b else None
        return to_values, to_b, None
        # END SOLUTION a7.4


class CSRSample(Function):
    """out[p] = sum_j a[i, j] b[col[p], j] for p in row i: a @ b^T at A's places

    Let G be the matrix with `grad` as values at A's places. The rows of a and b come
    in as in a @ b^T, so grad_a = G @ b and grad_b = G^T @ a.

    a [M, N], b [K, N] -> out [nnz]
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor, pattern: CSRPattern) -> Any:
        ctx.save_for_backward(a, b)
        ctx.pattern = pattern
        return a.backend.csr_sample(*pattern.indices(), a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # BEGIN SOLUTION a7.4
        a, b = ctx.saved_tensors
        pattern: CSRPattern = ctx.pattern
        need_a, need_b, _ = ctx.needs_input_grad
        to_a = CSRMatMul.apply(grad, b, pattern) if need_a else None
        to_b = transposed_matmul(grad, a, pattern) if need_b else None
        return to_a, to_b, None
        # END SOLUTION a7.4


class Reorder(Function):
    """out[p] = values[order[p]]; order is a permutation, the gradient goes back by it.

    values [nnz], order and its inverse [nnz] -> out [nnz]
    """

    @staticmethod
    def forward(ctx: Context, values: Tensor, order: Tensor, inverse: Tensor) -> Any:
        ctx.order, ctx.inverse = order, inverse
        return values.backend.gather(values.raw, 0, order.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # BEGIN SOLUTION a7.4
        return Reorder.apply(grad, ctx.inverse, ctx.order), None, None
        # END SOLUTION a7.4


class CSRToDense(Function):
    """out[i, col[p]] += values[p] for p in row i; grad_values[p] = grad[i, col[p]]

    values [nnz] -> out [M, K]
    """

    @staticmethod
    def forward(ctx: Context, values: Tensor, pattern: CSRPattern) -> Any:
        ctx.pattern = pattern
        backend, cols = values.backend, pattern.shape[1]
        return backend.csr_to_dense(*pattern.indices(), values.raw, cols)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # BEGIN SOLUTION a7.4
        return CSRGather.apply(grad, ctx.pattern), None
        # END SOLUTION a7.4


class CSRGather(Function):
    """out[p] = a[i, col[p]] for p in row i; the gradient for a is 0 elsewhere.

    a [M, K] -> out [nnz]
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, pattern: CSRPattern) -> Any:
        ctx.pattern = pattern
        return a.backend.csr_gather(*pattern.indices(), a.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # BEGIN SOLUTION a7.4
        return CSRToDense.apply(grad, ctx.pattern), None
        # END SOLUTION a7.4


def transposed_matmul(values: Tensor, dense: Tensor, pattern: CSRPattern) -> Tensor:
    """A^T [K, M] @ dense [M, N] -> [K, N], where A has these values at these places."""
    # BEGIN SOLUTION a7.4
    to, order, inverse = pattern.transposed()
    return CSRMatMul.apply(Reorder.apply(values, order, inverse), dense, to)
    # END SOLUTION a7.4


def pattern_of(a: Tensor) -> CSRPattern:
    """Where a dense matrix [M, K] is not zero."""
    raws = host_read("to_sparse_csr()", a.raw, a.backend.csr_pattern)  # how many
    crow, col = map(a.wrap, raws)
    return CSRPattern(crow, col, (a.raw.shape[0], a.raw.shape[1]))
