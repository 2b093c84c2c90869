"""Sparse matrices in compressed sparse rows (CSR).

With this file one can store a matrix that is mostly zeros by its other elements only,
and multiply by it, with gradients:

    A = minitorch.sparse_csr_tensor([0, 1, 1, 3], [1, 0, 2], [5.0, 7.0, 8.0], (3, 3))
    A = dense.to_sparse_csr()      # what is not zero in a dense matrix
    A @ x, A @ B, B @ A, A.T @ B   # x a vector, B a dense matrix
    A.to_dense()

    0 5 0        crow_indices = [0, 1, 1, 3]    row i is elements crow[i] to crow[i + 1]
    0 0 0        col_indices  = [1, 0, 2]       the column of each element
    7 0 8        values       = [5, 7, 8]       and its number

The values are a tensor [nnz] that may require a gradient; the gradient exists at these
places only, so a pruned weight stays pruned while it learns. `mm` and `sampled_addmm`
are the function forms. What happens in a product is in `minitorch/functions/sparse.py`.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import minitorch.dtypes as dtypes
from minitorch.arguments import parse_to
from minitorch.creation import tensor
from minitorch.dtypes import DType
from minitorch.executor import host_read
from minitorch.functions import sparse as functions
from minitorch.functions.operands import check_alike, check_same_device, is_tensor
from minitorch.functions.sparse import CSRPattern
from minitorch.tensor import Number, Size, Tensor


class Layout:
    """How a tensor is stored: `minitorch.sparse_csr`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"minitorch.{self.name}"


sparse_csr = Layout("sparse_csr")


class SparseCSR:
    """A sparse matrix [M, K]. Make one with `sparse_csr_tensor` or `to_sparse_csr`.

    Args:
        pattern: where the elements stand.
        values: the elements [nnz], on the pattern's device.
    """

    __slots__ = ("_values", "pattern")
    __array_priority__ = 1000  # NumPy leaves `array @ matrix` to us

    def __init__(self, pattern: CSRPattern, values: Tensor) -> None:
        if values.raw.shape != (pattern.nnz,):
            raise ValueError(
                f"SparseCSR: values is {values.raw.shape}; expected ({pattern.nnz},), "
                f"one number for each place of the pattern"
            )
        check_same_device("SparseCSR", values, pattern.col)
        self.pattern, self._values = pattern, values

    # ------------------------------------------------------------ what it is

    @property
    def shape(self) -> Size:
        return Size(self.pattern.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """2"""
        return 2

    ndim = property(dim)

    def numel(self) -> int:
        """Rows times columns, as for the dense matrix."""
        return self.shape.numel()

    @property
    def nnz(self) -> int:
        """How many elements are stored (PyTorch's `_nnz()`)."""
        return self.pattern.nnz

    def _nnz(self) -> int:
        return self.pattern.nnz

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def device(self) -> str:
        return self._values.device

    @property
    def layout(self) -> Layout:
        return sparse_csr

    is_sparse_csr = True

    def crow_indices(self) -> Tensor:
        """[M + 1]: row i is elements crow[i] to crow[i + 1] - 1. Do not change it."""
        return self.pattern.crow

    def col_indices(self) -> Tensor:
        """[nnz]: the column of each element. Do not change it."""
        return self.pattern.col

    def values(self) -> Tensor:
        """[nnz]: the numbers themselves; changed in place, they change the matrix."""
        return self._values

    def __len__(self) -> int:
        return self.pattern.shape[0]

    def __repr__(self) -> str:
        from minitorch.printing import sparse_csr_repr

        return sparse_csr_repr(self)

    def __bool__(self) -> bool:
        raise ValueError("bool(): a sparse matrix is neither true nor false")

    # ----------------------------------------------------------------- autograd

    @property
    def requires_grad(self) -> bool:
        return self._values.requires_grad

    def requires_grad_(self, mode: bool = True) -> SparseCSR:
        """Turn recording on or off for the values, which must be a leaf."""
        self._values.requires_grad_(mode)
        return self

    @property
    def grad(self) -> SparseCSR | None:
        """The gradient of the values, at this matrix's places; None before the first.

        PyTorch may return a dense gradient here, of all elements. The zeros that are
        not stored are constants.
        """
        grad = self._values.grad
        return None if grad is None else SparseCSR(self.pattern, grad)

    def detach(self) -> SparseCSR:
        """The same memory, outside of the graph."""
        return SparseCSR(self.pattern, self._values.detach())

    def clone(self) -> SparseCSR:
        """A copy of the values, at the same places."""
        return SparseCSR(self.pattern, self._values.clone())

    # ---------------------------------------------------------------- conversions

    def to_dense(self) -> Tensor:
        """The dense matrix [M, K]; numbers for the same place are added up."""
        return functions.CSRToDense.apply(self._values, self.pattern)

    def to_sparse_csr(self) -> SparseCSR:
        """This matrix itself."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> SparseCSR:
        """On another device, or with values of another dtype, or both."""
        device, *_ = parse_to("to", *args, **kwargs)
        pattern = self.pattern
        if device is not None and device != self.device:
            crow, col = pattern.crow.to(device), pattern.col.to(device)
            pattern = CSRPattern(crow, col, pattern.shape)
        return SparseCSR(pattern, self._values.to(*args, **kwargs))

    def cpu(self) -> SparseCSR:
        """On the default device "cpu"."""
        return self.to("cpu")

    def cuda(self) -> SparseCSR:
        """On the device "cuda"."""
        return self.to("cuda")

    def float(self) -> SparseCSR:
        """With float32 values."""
        return self.to(dtypes.float32)

    def double(self) -> SparseCSR:
        """With float64 values."""
        return self.to(dtypes.float64)

    # ----------------------------------------------------------------- arithmetic

    def t(self) -> SparseCSR:
        """The transposed matrix [K, M], in compressed sparse rows too.

        (PyTorch returns compressed columns.) Sorting the elements takes about as long
        as a product; the order is kept, for all matrices that share the pattern.
        """
        to, order, inverse = self.pattern.transposed()
        return SparseCSR(to, functions.Reorder.apply(self._values, order, inverse))

    @property
    def T(self) -> SparseCSR:
        return self.t()

    def transpose(self, dim0: int, dim1: int) -> SparseCSR:
        """The two dimensions swapped."""
        if not (-2 <= dim0 < 2 and -2 <= dim1 < 2):
            raise IndexError(
                f"transpose: dims are {dim0} and {dim1}; a matrix has 0 and 1"
            )
        return self if dim0 % 2 == dim1 % 2 else self.t()

    def __matmul__(self, other: Tensor) -> Tensor:
        """A [M, K] @ vector [K] -> [M]; A @ dense [K, N] -> [M, N]"""
        values, dense = _factors(self._values, other)
        _check_inner("A @ dense", self.shape[1], "columns", dense, 0)
        if dense.dim() == 1:
            column = dense.unsqueeze(1)
            return functions.CSRMatMul.apply(values, column, self.pattern).squeeze(1)
        return functions.CSRMatMul.apply(values, dense, self.pattern)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        """vector [M] @ A [M, K] -> [K]; dense [N, M] @ A -> [N, K]"""
        values, dense = _factors(self._values, other)
        _check_inner("dense @ A", self.shape[0], "rows", dense, -1)
        column = dense.unsqueeze(1) if dense.dim() == 1 else dense.T
        out = functions.transposed_matmul(values, column, self.pattern)
        return out.squeeze(1) if dense.dim() == 1 else out.T

    def matmul(self, other: Tensor) -> Tensor:
        """self @ other"""
        return self @ other

    mm = mv = matmul

    def __mul__(self, other: Any) -> SparseCSR:
        return SparseCSR(self.pattern, self._values * _number("mul", other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> SparseCSR:
        return SparseCSR(self.pattern, self._values / _number("div", other))

    def __neg__(self) -> SparseCSR:
        return SparseCSR(self.pattern, -self._values)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> SparseCSR:
    """A sparse matrix from its three lists.

    Args:
        crow_indices: [M + 1], from 0 to nnz, never falling: where each row begins.
        col_indices: [nnz]: columns. They may come in any order within a row; numbers
            for the same place are added up.
        values: [nnz]. A tensor is used as it is, and gradients flow to it.
        size: (M, K); without it, M is len(crow_indices) - 1 and K the largest column
            plus 1.
        dtype: of the values; without it, theirs.
        device: where all of it goes; without it, where `values` is.
        requires_grad: make the values a leaf that requires grad.

    Raises:
        ValueError: the lists do not describe a matrix; the message says where.
        TypeError: indices that are not integers.
    """
    numbers = values if is_tensor(values) else tensor(values, device=device)
    numbers = numbers.to(device or numbers.device, dtype or numbers.dtype)
    crow = _index_list("crow_indices", crow_indices, numbers.device)
    col = _index_list("col_indices", col_indices, numbers.device)
    if crow.dtype is not col.dtype:
        raise TypeError(
            f"sparse_csr_tensor: crow_indices is {crow.dtype.name} and col_indices "
            f"{col.dtype.name}; both must be int64, or both int32"
        )
    host = _read(crow), _read(col)
    shape = _shape_for(*host) if size is None else _checked_size(size)
    if numbers.raw.shape != (len(host[1]),):
        raise ValueError(
            f"sparse_csr_tensor: values is {numbers.raw.shape} and col_indices "
            f"{host[1].shape}; both must be (nnz,): one number for each column"
        )
    _check_structure(*host, shape)
    if requires_grad:
        numbers = numbers.detach().requires_grad_()
    return SparseCSR(CSRPattern(crow, col, shape), numbers)


def to_sparse_csr(dense: Tensor) -> SparseCSR:
    """The elements of a dense matrix [M, K] that are not zero, as a sparse matrix.

    The gradient of the values flows back to these elements of `dense`.
    """
    if dense.dim() != 2:
        raise ValueError(
            f"to_sparse_csr: the tensor is {dense.raw.shape}; compressed sparse rows "
            f"hold matrices, with two dimensions"
        )
    pattern = functions.pattern_of(dense)
    return SparseCSR(pattern, functions.CSRGather.apply(dense, pattern))


def mm(a: SparseCSR | Tensor, b: SparseCSR | Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, in this order or the other."""
    if not (isinstance(a, SparseCSR) or isinstance(b, SparseCSR)):
        raise TypeError(
            f"sparse.mm: got a {type(a).__name__} and a {type(b).__name__}; one must "
            f"be a SparseCSR; use minitorch.mm for two dense matrices"
        )
    for x in (a, b):
        if not isinstance(x, SparseCSR) and not (is_tensor(x) and x.dim() == 2):
            kind = x.raw.shape if is_tensor(x) else type(x).__name__
            raise ValueError(f"sparse.mm: got {kind}; expected two matrices")
    return a @ b  # type: ignore[operator]


def sampled_addmm(
    input: SparseCSR,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Number = 1.0,
    alpha: Number = 1.0,
) -> SparseCSR:
    """beta * input + alpha * (mat1 @ mat2), at the places of `input` only.

    input [M, K], mat1 [M, N], mat2 [N, K] -> [M, K]. The work is nnz * N.
    """
    if not isinstance(input, SparseCSR):
        raise TypeError(
            f"sampled_addmm: input is a {type(input).__name__}; expected a SparseCSR"
        )
    check_alike("sampled_addmm", input._values, mat1, mat2)
    rows, cols = input.shape
    inner = mat1.raw.shape[1:2]
    if mat1.raw.shape != (rows, *inner) or mat2.raw.shape != (*inner, cols):
        raise ValueError(
            f"sampled_addmm: input is {(rows, cols)}, mat1 {mat1.raw.shape} and mat2 "
            f"{mat2.raw.shape}; expected (M, K), (M, N) and (N, K)"
        )
    product = functions.CSRSample.apply(mat1, mat2.T, input.pattern)
    return SparseCSR(input.pattern, beta * input._values + alpha * product)


# ---------------------------------------------------------------- checks of arguments


def _index_list(name: str, given: Any, device: str) -> Tensor:
    """A copy of `given` as a vector of int64 or int32."""
    index = tensor(given)
    if index.dtype.category != 1 and index.numel():
        raise TypeError(
            f"sparse_csr_tensor: {name} is {index.dtype.name}; expected integers"
        )
    if index.dim() != 1:
        raise ValueError(
            f"sparse_csr_tensor: {name} is {index.raw.shape}; expected one dimension "
            f"(stacks of sparse matrices are not supported)"
        )
    wanted = index.dtype if index.dtype.category == 1 else dtypes.int64
    return index.to(device, wanted)


def _read(index: Tensor) -> np.ndarray:
    return host_read("check of an index", index.raw)


def _shape_for(crow: np.ndarray, col: np.ndarray) -> tuple[int, int]:
    return max(len(crow) - 1, 0), int(col.max()) + 1 if len(col) else 0


def _checked_size(size: Any) -> tuple[int, int]:
    try:
        rows, cols = (operator.index(n) for n in size)
    except (TypeError, ValueError):
        raise ValueError(
            f"sparse_csr_tensor: size is {size!r}; expected two ints (rows, columns)"
        ) from None
    if rows < 0 or cols < 0:
        raise ValueError(f"sparse_csr_tensor: size is {size!r}; none may be negative")
    return rows, cols


def _check_structure(crow: np.ndarray, col: np.ndarray, shape: tuple[int, int]) -> None:
    """Every row must be a range of elements, every column one of the matrix.

    Kernels rely on it: they would read and write outside of the memory.
    """
    rows, cols = shape
    problem = ""
    if len(crow) != rows + 1:
        problem = f"crow_indices has {len(crow)} numbers for {rows} rows; expected "
        problem += f"one more than rows, {rows + 1}"
    elif crow[0] != 0 or crow[-1] != len(col):
        problem = f"crow_indices goes from {crow[0]} to {crow[-1]}; it must go from 0 "
        problem += f"to the number of elements, {len(col)}"
    elif (falls := np.flatnonzero(np.diff(crow) < 0)).size:
        i = falls[0]
        problem = f"crow_indices falls from {crow[i]} to {crow[i + 1]} at row {i}; it "
        problem += "must stay or rise from row to row"
    elif (bad := np.flatnonzero((col < 0) | (col >= cols))).size:
        problem = f"col_indices[{bad[0]}] is {col[bad[0]]}; the matrix has {cols} "
        problem += f"columns, so it must be from 0 to {cols - 1}"
    if problem:
        raise ValueError(f"sparse_csr_tensor: {problem}")


def _factors(values: Tensor, dense: Any) -> tuple[Tensor, Tensor]:
    """The values and the dense operand of a product, of one dtype and device."""
    if not is_tensor(dense):
        hint = "use .to_dense() on one" if isinstance(dense, SparseCSR) else ""
        raise TypeError(
            f"matmul: one operand is a SparseCSR and the other a "
            f"{type(dense).__name__}; expected a dense tensor; {hint}".rstrip("; ")
        )
    check_alike("matmul", values, dense)
    if values.dtype.category == 0:
        raise TypeError("matmul: bool matrices cannot be multiplied; use .to(int64)")
    return values, dense


def _check_inner(what: str, size: int, name: str, dense: Tensor, dim: int) -> None:
    if dense.dim() not in (1, 2) or dense.raw.shape[dim] != size:
        matrix = f"({size}, N)" if dim == 0 else f"(N, {size})"
        raise ValueError(
            f"matmul: {what}: A has {size} {name} and the dense tensor is "
            f"{dense.raw.shape}; expected ({size},) or {matrix}"
        )


def _number(name: str, other: Any) -> Any:
    """A Python number, or a tensor of one element without dimensions."""
    if is_tensor(other) and other.dim() == 0:
        return other
    if isinstance(other, (bool, int, float, np.number)):
        return other
    kind = other.raw.shape if is_tensor(other) else type(other).__name__
    raise TypeError(
        f"{name}: a SparseCSR and {kind}; a sparse matrix can be scaled by a number; "
        f"for products of elements use .to_dense() or .values()"
    )
