"""The matrix product.

With this file one can see the product's two gradients, which are products again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minitorch.dtypes import Number
from minitorch.function import Context, Function
from minitorch.functions.autocasting import in_lower, in_widest, will_be_cast
from minitorch.functions.movement import View
from minitorch.functions.operands import (
    check_alike,
    check_broadcast,
    checked_tensor,
    different_devices,
    type_with_number,
    unbroadcast,
)
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


# BEGIN SOLUTION a2.5
class MatMul(Function):
    """out = a @ b, that is out[i, j] = sum_k a[i, k] b[k, j]

    a [*, M, K] @ b [*, K, N] -> out [*, M, N]; the batch dims * broadcast.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.matmul(a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # From d out[i, j] / d a[i, k] = b[k, j] follows grad_a = grad @ b^T, and in the
        # same way grad_b = a^T @ grad.
        a, b = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        return (
            unbroadcast(MatMul.apply(grad, b.mT), a.shape) if need_a else None,
            unbroadcast(MatMul.apply(a.mT, grad), b.shape) if need_b else None,
        )


# END SOLUTION a2.5


class VectorProduct(Function):
    """`MatMul` where a is a vector, which is taken as a row, or b, a column."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        left, right = a.raw, b.raw
        row, column = len(left.shape) == 1, len(right.shape) == 1
        left = left.unsqueeze(0) if row else left
        right = right.unsqueeze(1) if column else right
        out = a.backend.matmul(left, right)
        kept = () if row and column else out.shape[-1:] if row else out.shape[-2:-1]
        return TensorData(out.storage, out.shape[:-2] + kept)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        left, right = a if a.dim() > 1 else _row(a), b if b.dim() > 1 else _column(b)
        batch = check_broadcast("matmul", left.raw.shape[:-2], right.raw.shape[:-2])
        grad = grad.reshape(*batch, left.raw.shape[-2], right.raw.shape[-1])
        to_a = to_b = None
        if need_a:
            to_a = unbroadcast(MatMul.apply(grad, right.mT), left.shape)
            to_a = to_a.reshape(a.shape)
        if need_b:
            to_b = unbroadcast(MatMul.apply(left.mT, grad), right.shape)
            to_b = to_b.reshape(b.shape)
        return to_a, to_b


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """input @ other in all of PyTorch's cases; one of them may be a `SparseCSR`.

    A vector on the left is a row, on the right a column, and its dimension is dropped
    from the result: [K] @ [K] -> (), [M, K] @ [K] -> [M], [K] @ [*, K, N] -> [*, N].
    """
    if not (hasattr(input, "raw") and hasattr(other, "raw")):
        return _with_sparse(input, other)
    rows, columns = _checked(input, other)
    return (MatMul if rows > 1 and columns > 1 else VectorProduct).apply(input, other)


def _row(a: Tensor) -> Tensor:
    return View.apply(a, (1, *a.raw.shape))


def _column(a: Tensor) -> Tensor:
    return View.apply(a, (*a.raw.shape, 1))


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices: [M, K] @ [K, N] -> [M, N]"""
    return _product("mm", input, 2, mat2, 2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two stacks: [B, M, K] @ [B, K, N] -> [B, M, N]"""
    return _product("bmm", checked_tensor("bmm", input), 3, mat2, 3)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector: [M, K] @ [K] -> [M]"""
    return _product("mv", checked_tensor("mv", input), 2, vec, 1)


@in_widest
def dot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product of two vectors: [K] @ [K] -> ()"""
    return _product("dot", checked_tensor("dot", input), 1, other, 1)


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of all pairs: [N], [M] -> [N, M]"""
    for x in (input, vec2):
        if len(checked_tensor("outer", x).raw.shape) != 1:
            raise ValueError(f"outer: expected two vectors, got {x.raw.shape}")
    return _column(input) * vec2


@in_lower
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta input + alpha mat1 @ mat2: [M, K] @ [K, N] -> [M, N]; input expands to it.

    Where beta is 0 nobody looks at the input, which has no gradient then.
    """
    out = _product("addmm", mat1, 2, mat2, 2)
    check_alike("addmm", out, input)
    shape, kind = out.raw.shape, out.raw.storage.dtype
    if check_broadcast("addmm", input.raw.shape, shape) != shape:
        raise ValueError(
            f"addmm: input is {input.raw.shape}, which does not expand to the "
            f"product's {shape}"
        )
    for factor in (beta, alpha):
        if type_with_number("addmm", out, factor) is not kind:
            raise TypeError(
                f"addmm: beta is {beta} and alpha {alpha}, and the operands are "
                f"{kind.name}; both must be ints for them"
            )
    out = out if alpha == 1 else out * alpha
    if beta == 0:
        return out
    return out + (input if beta == 1 else input * beta)


def _product(name: str, a: Any, a_dims: int, b: Any, b_dims: int) -> Tensor:
    """a @ b for operands with just these numbers of dimensions: `mm`, `bmm`, ..."""
    try:
        left, right = a.raw.shape, b.raw.shape
    except AttributeError:  # of a sparse matrix, or what is none
        return _with_sparse(a, b)
    if len(left) != a_dims or len(right) != b_dims:
        found = "second", right, b_dims
        which, shape, dims = found if len(left) == a_dims else ("first", left, a_dims)
        raise ValueError(
            f"{name}: the {which} operand is {shape}; expected {dims} dimension(s); "
            f"use matmul for others"
        )
    if a_dims == 3 and left[0] != right[0]:
        raise ValueError(
            f"{name}: a is {left} and b is {right}; both must have as many matrices; "
            f"use matmul to broadcast"
        )
    _checked(a, b)
    return (MatMul if a_dims > 1 and b_dims > 1 else VectorProduct).apply(a, b)


def _with_sparse(a: Any, b: Any) -> Tensor:
    """The product where an operand is no tensor: it may be a sparse matrix."""
    from minitorch.sparse import SparseCSR

    if isinstance(a, SparseCSR):
        return a @ b
    if isinstance(b, SparseCSR):
        return b.__rmatmul__(a)
    name, x = ("second", b) if hasattr(a, "raw") else ("first", a)
    raise TypeError(
        f"matmul: the {name} operand is a {type(x).__name__}; expected a tensor"
    )


def _checked(a: Tensor, b: Tensor) -> tuple[int, int]:
    """How many dimensions the operands have, if they can be multiplied."""
    left, right = a.raw.shape, b.raw.shape
    if not left or not right:
        name = "second" if left else "first"
        raise ValueError(
            f"matmul: the {name} operand has no dimensions; use * for a number"
        )
    k, n = left[-1], right[-2:][0]
    if k != n:
        raise ValueError(
            f"matmul: a is {left} and b is {right}; a's last dimension ({k}) must "
            f"equal b's {'second to last' if len(right) > 1 else 'only one'} ({n})"
        )
    dtype = a.raw.storage.dtype
    if dtype is not b.raw.storage.dtype and not will_be_cast("matmul", a, b):
        raise TypeError(
            f"matmul: a is {dtype.name} and b is {b.dtype.name}; convert one with "
            f".to(dtype)"
        )
    if dtype.category == 0:
        raise TypeError("matmul: bool tensors cannot be multiplied; use .to(int64)")
    if a.raw.storage.device != b.raw.storage.device:
        raise RuntimeError(different_devices("matmul", a, b))
    dims = len(left), len(right)
    if dims > (2, 2) or dims[1] > 2:
        check_broadcast("matmul: batch", left[:-2], right[:-2])
    return dims
