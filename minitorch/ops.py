"""Operations in the form of functions: `minitorch.exp(x)` beside `x.exp()`.

With this file a program can be written as PyTorch programs are. There is no mathematics
here: each function calls the `Tensor` method of its name, where its meaning stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitorch.functions.matmul import matmul as multiply
from minitorch.functions.matmul import product
from minitorch.tensor import Number, Tensor, choose


def _tensor(name: str, input: Any) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{name}: expected a minitorch tensor, got {type(input).__name__}; make "
            f"one with minitorch.tensor(...)"
        )
    return input


# fmt: off
def add(input: Tensor, other: Any, *, alpha: Number = 1) -> Tensor:
    """input + alpha * other"""
    return _tensor("add", input).add(other, alpha=alpha)

def sub(input: Tensor, other: Any, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other"""
    return _tensor("sub", input).sub(other, alpha=alpha)

def mul(input: Tensor, other: Any) -> Tensor:
    """input * other"""
    return _tensor("mul", input) * other

def div(input: Tensor, other: Any) -> Tensor:
    """input / other"""
    return _tensor("div", input) / other

def floor_divide(input: Tensor, other: Any) -> Tensor:
    """floor(input / other)"""
    return _tensor("floor_divide", input) // other

def remainder(input: Tensor, other: Any) -> Tensor:
    """input - floor(input / other) * other"""
    return _tensor("remainder", input) % other

def pow(input: Any, exponent: Any) -> Tensor:
    """input ** exponent"""
    return input**exponent

def maximum(input: Tensor, other: Tensor) -> Tensor:
    """The larger of each pair."""
    return _tensor("maximum", input).maximum(other)

def minimum(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of each pair."""
    return _tensor("minimum", input).minimum(other)

def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Values kept within [min, max]."""
    return _tensor("clamp", input).clamp(min, max)

def clip(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Values kept within [min, max]."""
    return _tensor("clip", input).clamp(min, max)

def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """value where the mask holds, else input."""
    return _tensor("masked_fill", input).masked_fill(mask, value)

def where(condition: Tensor, input: Any, other: Any) -> Tensor:
    """input where the condition holds, else other."""
    return choose(_tensor("where", condition), input, other)

def neg(input: Tensor) -> Tensor:
    """-input"""
    return -_tensor("neg", input)

def abs(input: Tensor) -> Tensor:
    """|input|"""
    return _tensor("abs", input).abs()

def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1"""
    return _tensor("sign", input).sign()

def floor(input: Tensor) -> Tensor:
    """The largest whole number that is not above the element."""
    return _tensor("floor", input).floor()

def ceil(input: Tensor) -> Tensor:
    """The smallest whole number that is not below the element."""
    return _tensor("ceil", input).ceil()

def round(input: Tensor) -> Tensor:
    """The nearest whole number, halves to the even one."""
    return _tensor("round", input).round()

def exp(input: Tensor) -> Tensor:
    """e ** input"""
    return _tensor("exp", input).exp()

def expm1(input: Tensor) -> Tensor:
    """exp(input) - 1"""
    return _tensor("expm1", input).expm1()

def log(input: Tensor) -> Tensor:
    """The natural logarithm."""
    return _tensor("log", input).log()

def log1p(input: Tensor) -> Tensor:
    """log(1 + input)"""
    return _tensor("log1p", input).log1p()

def sqrt(input: Tensor) -> Tensor:
    """The square root."""
    return _tensor("sqrt", input).sqrt()

def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(input)"""
    return _tensor("rsqrt", input).rsqrt()

def reciprocal(input: Tensor) -> Tensor:
    """1 / input"""
    return _tensor("reciprocal", input).reciprocal()

def square(input: Tensor) -> Tensor:
    """input * input"""
    return _tensor("square", input).square()

def sin(input: Tensor) -> Tensor:
    """The sine of radians."""
    return _tensor("sin", input).sin()

def cos(input: Tensor) -> Tensor:
    """The cosine of radians."""
    return _tensor("cos", input).cos()

def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _tensor("tanh", input).tanh()

def erf(input: Tensor) -> Tensor:
    """The error function."""
    return _tensor("erf", input).erf()

def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))"""
    return _tensor("sigmoid", input).sigmoid()

def relu(input: Tensor) -> Tensor:
    """The element where it is above 0, else 0."""
    return _tensor("relu", input).relu()

def softmax(input: Tensor, dim: int) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`."""
    return _tensor("softmax", input).softmax(dim)

def log_softmax(input: Tensor, dim: int) -> Tensor:
    """x - logsumexp(x) along `dim`."""
    return _tensor("log_softmax", input).log_softmax(dim)

def lt(input: Tensor, other: Any) -> Tensor:
    """input < other"""
    return _tensor("lt", input) < other

def le(input: Tensor, other: Any) -> Tensor:
    """input <= other"""
    return _tensor("le", input) <= other

def gt(input: Tensor, other: Any) -> Tensor:
    """input > other"""
    return _tensor("gt", input) > other

def ge(input: Tensor, other: Any) -> Tensor:
    """input >= other"""
    return _tensor("ge", input) >= other

def eq(input: Tensor, other: Any) -> Tensor:
    """input == other"""
    return _tensor("eq", input).eq(other)

def ne(input: Tensor, other: Any) -> Tensor:
    """input != other"""
    return _tensor("ne", input).ne(other)

def logical_and(input: Tensor, other: Any) -> Tensor:
    """Whether both are not 0."""
    return _tensor("logical_and", input).logical_and(other)

def logical_or(input: Tensor, other: Any) -> Tensor:
    """Whether at least one is not 0."""
    return _tensor("logical_or", input).logical_or(other)

def logical_xor(input: Tensor, other: Any) -> Tensor:
    """Whether exactly one is not 0."""
    return _tensor("logical_xor", input).logical_xor(other)

def logical_not(input: Tensor) -> Tensor:
    """Whether the element is 0."""
    return _tensor("logical_not", input).logical_not()

def isnan(input: Tensor) -> Tensor:
    """Where elements are NaN."""
    return _tensor("isnan", input).isnan()

def isinf(input: Tensor) -> Tensor:
    """Where elements are infinite."""
    return _tensor("isinf", input).isinf()

def isfinite(input: Tensor) -> Tensor:
    """Where elements are neither infinite nor NaN."""
    return _tensor("isfinite", input).isfinite()

def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and equal elements."""
    return _tensor("equal", input).equal(other)

def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Where |input - other| <= atol + rtol |other|."""
    return _tensor("isclose", input).isclose(other, rtol, atol, equal_nan)

def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """Whether |input - other| <= atol + rtol |other| everywhere."""
    return _tensor("allclose", input).allclose(other, rtol, atol, equal_nan)

def sum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum over one, several or all dims."""
    return _tensor("sum", input).sum(dim, keepdim)

def mean(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean over one, several or all dims."""
    return _tensor("mean", input).mean(dim, keepdim)

def var(
    input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False
) -> Tensor:
    """The variance over one, several or all dims."""
    return _tensor("var", input).var(dim, correction=correction, keepdim=keepdim)

def std(
    input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False
) -> Tensor:
    """The standard deviation over one, several or all dims."""
    return _tensor("std", input).std(dim, correction=correction, keepdim=keepdim)

def prod(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The product over one or all dims."""
    return _tensor("prod", input).prod(dim, keepdim)

def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The maximum; with a dim, the pair (values, indices)."""
    return _tensor("max", input).max(dim, keepdim)

def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The minimum; with a dim, the pair (values, indices)."""
    return _tensor("min", input).min(dim, keepdim)

def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The maximum over one, several or all dims."""
    return _tensor("amax", input).amax(dim, keepdim)

def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The minimum over one, several or all dims."""
    return _tensor("amin", input).amin(dim, keepdim)

def argmax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Where the first maximum is."""
    return _tensor("argmax", input).argmax(dim, keepdim)

def argmin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Where the first minimum is."""
    return _tensor("argmin", input).argmin(dim, keepdim)

def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether an element is not 0."""
    return _tensor("any", input).any(dim, keepdim)

def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether no element is 0."""
    return _tensor("all", input).all(dim, keepdim)

def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow."""
    return _tensor("logsumexp", input).logsumexp(dim, keepdim)

def norm(
    input: Tensor, p: float = 2, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The p-norm (1, 2 or inf)."""
    return _tensor("norm", input).norm(p, dim, keepdim)

def cumsum(input: Tensor, dim: int) -> Tensor:
    """Running sums along `dim`."""
    return _tensor("cumsum", input).cumsum(dim)

def sort(input: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Sorted values along `dim`, and where they were."""
    return _tensor("sort", input).sort(dim, descending)

def argsort(input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The order that sorts `dim`."""
    return _tensor("argsort", input).argsort(dim, descending)

def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True) -> Any:
    """The k largest (or smallest) along `dim`, and where they were."""
    return _tensor("topk", input).topk(k, dim, largest)

def matmul(input: Tensor, other: Tensor) -> Tensor:
    """input @ other; one of them may be a `SparseCSR`."""
    return multiply(input, other)

def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices; one of them may be a `SparseCSR`."""
    return product("mm", input, 2, mat2, 2)

def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two stacks of matrices."""
    return _tensor("bmm", input).bmm(mat2)

def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of all pairs of elements of two vectors."""
    return _tensor("outer", input).outer(vec2)

def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return _tensor("mv", input).mv(vec)

def dot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product of two vectors."""
    return _tensor("dot", input).dot(other)

def reshape(input: Tensor, shape: Any) -> Tensor:
    """The same elements in another shape."""
    return _tensor("reshape", input).reshape(shape)

def permute(input: Tensor, dims: Any) -> Tensor:
    """Dimension i of the view is dimension dims[i]."""
    return _tensor("permute", input).permute(dims)

def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    return _tensor("transpose", input).transpose(dim0, dim1)

def movedim(input: Tensor, source: int, destination: int) -> Tensor:
    """One dimension moved to another place."""
    return _tensor("movedim", input).movedim(source, destination)

def broadcast_to(input: Tensor, shape: Any) -> Tensor:
    """Expanded to `shape`."""
    return _tensor("broadcast_to", input).expand(shape)

def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without dims of size 1."""
    return _tensor("squeeze", input).squeeze(dim)

def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new dim of size 1."""
    return _tensor("unsqueeze", input).unsqueeze(dim)

def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims start_dim to end_dim as one."""
    return _tensor("flatten", input).flatten(start_dim, end_dim)

def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dim as several of the given sizes."""
    return _tensor("unflatten", input).unflatten(dim, sizes)

def ravel(input: Tensor) -> Tensor:
    """All elements in one dim."""
    return _tensor("ravel", input).ravel()

def t(input: Tensor) -> Tensor:
    """The transpose of a matrix."""
    return _tensor("t", input).t()

def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along `dim`."""
    return Tensor.cat(tensors, dim)

def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dim."""
    return Tensor.stack(tensors, dim)

def split(input: Tensor, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of `size` indices each, or of given sizes."""
    return _tensor("split", input).split(size, dim)

def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of (nearly) equal size."""
    return _tensor("chunk", input).chunk(chunks, dim)

def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of `dim`, one tensor each."""
    return _tensor("unbind", input).unbind(dim)

def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` indices of `dim` from `start`."""
    return _tensor("narrow", input).narrow(dim, start, length)

def flip(input: Tensor, dims: Any) -> Tensor:
    """The order of the elements along `dims` reversed."""
    return _tensor("flip", input).flip(dims)

def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Elements above the diagonal set to 0."""
    return _tensor("tril", input).tril(diagonal)

def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Elements below the diagonal set to 0."""
    return _tensor("triu", input).triu(diagonal)

def clone(input: Tensor) -> Tensor:
    """A contiguous copy."""
    return _tensor("clone", input).clone()

def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i, j] = input[index[i, j], j] for dim 0, and so on."""
    return _tensor("gather", input).gather(dim, index)

def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with out[index[i, j], j] += src[i, j] for dim 0, and so on."""
    return _tensor("scatter_add", input).scatter_add(dim, index, src)

def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices `index` of `dim`."""
    return _tensor("index_select", input).index_select(dim, index)

def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds."""
    return _tensor("masked_select", input).masked_select(mask)

def nonzero(input: Tensor) -> Tensor:
    """The indices of all elements that are not 0."""
    return _tensor("nonzero", input).nonzero()

def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of `dim`."""
    return _tensor("select", input).select(dim, index)

def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is float32 or float64."""
    return _tensor("is_floating_point", input).is_floating_point()

def numel(input: Tensor) -> int:
    """How many elements there are."""
    return _tensor("numel", input).numel()

def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a minitorch tensor."""
    return isinstance(obj, Tensor)
# fmt: on
