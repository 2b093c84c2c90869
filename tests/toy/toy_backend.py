"""A whole backend in NumPy: the primitives, and nothing else.

With this file `minitorch` runs tensors on the device "toy": networks train on it, since
everything else is made of these functions. docs/add_a_backend.md walks through it. It
is a package of its own (the folder beside it declares the entry point), as yours will
be. What the functions do, and their types, says `minitorch/backend/primitives.py`.
"""

import math

import numpy as np

from minitorch import operators
from minitorch.backend import Backend
from minitorch.backend.indexing import index_error
from minitorch.dtypes import from_numpy_dtype, int64
from minitorch.tensor_data import Storage, TensorData

quiet = np.errstate(all="ignore")
FAST = {operators.add: np.add, operators.mul: np.multiply, operators.sub: np.subtract}


@quiet
def wrap(array, dtype=None):
    """A contiguous copy of an array as a tensor, converted to `dtype`."""
    kind = dtype or from_numpy_dtype(array.dtype)
    flat = np.array(array, kind.numpy, order="C")
    return TensorData(Storage(flat.reshape(-1), kind, "toy"), flat.shape)


@quiet
def pack(array, dtype):
    """Python numbers in `dtype`: integers wrap around, as hardware does."""
    if dtype.category == 1:
        half = 2 ** (8 * dtype.itemsize - 1)

        def whole(x):
            return ((int(x) if math.isfinite(x) else -half) + half) % (2 * half) - half

        array = np.frompyfunc(whole, 1, 1)(array)
    kind = float if dtype.half else None  # NumPy's extensions take no objects
    return np.asarray(np.asarray(array, kind), dtype.numpy)


@quiet
def compute(fn, dtype, *operands):
    """fn of all elements, which broadcast; slow, since `fn` may be any function."""
    if fn in FAST and all(a.dtype.kind == "f" for a in operands):
        return FAST[fn](*operands)
    made = np.frompyfunc(fn, len(operands), 1)(*(a.astype(object) for a in operands))
    return pack(np.asarray(made, object), dtype)


def put(out, array, dtype):
    """`array` as a new tensor, or written into `out`."""
    if out is None:
        return wrap(array, dtype)
    out.array()[...] = array
    return out


def check(name, index, size, dim):
    """Raise an IndexError where an index is not in [0, size)."""
    for i in index[(index < 0) | (index >= size)][:1]:
        raise index_error(name, i, dim, size)


def places(name, array, dim, index):
    """NumPy's index of every element that `index` names."""
    check(name, index, array.shape[dim], dim)
    grid = list(np.indices(index.shape))
    return (*grid[:dim], index, *grid[dim + 1 :])


class Windows:
    """The windows of an image, seen one place of the window after the other."""

    def __init__(self, shape, kernel, stride, padding, dilation=(1, 1)):
        self.axes = axes = list(zip(shape[2:], kernel, stride, padding, dilation))
        self.counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]
        self.kernel = kernel

    def taps(self):
        """Place in the window; the windows with a pixel there; these pixels."""
        for tap in np.ndindex(*self.kernel):
            found = [
                reach(n, i * d - p, s, count)
                for i, count, (n, _, s, p, d) in zip(tap, self.counts, self.axes)
            ]
            yield tap, *((..., *parts) for parts in zip(*found))

    def sizes(self, count_include_pad):
        """By how many pixels the sum of each window is divided."""
        made = np.zeros(self.counts)
        for _, there, _ in self.taps():
            made[there] += 1
        return made * 0 + math.prod(self.kernel) if count_include_pad else made


def reach(n, start, step, count):
    """The windows o of `count` whose pixel o * step + start is one of n, and these."""
    first = max(0, -(start // step))
    last = max(first, min(count, -((start - n) // step))) - 1
    if last < first:
        return slice(0), slice(0)
    at = first * step + start
    return slice(first, last + 1), slice(at, last * step + start + 1, step)


def grouped(array, groups, dim):
    """Channels [..., C, ...] as [..., groups, C / groups, ...], a view."""
    shape, each = array.shape, array.shape[dim] // groups
    return array.reshape(*shape[:dim], groups, each, *shape[dim + 1 :])


def words(count, seed, offset):
    """`count` random 32-bit words, of blocks of four."""
    low = 0xFFFFFFFF
    blocks, keys = range(offset, offset - -count // 4), (seed & low, seed >> 32 & low)
    made = [operators.philox(b & low, b >> 32 & low, *keys) for b in blocks]
    return np.array(made, object).reshape(-1)[:count]


class ToyBackend(Backend):
    """NumPy, one function after the other."""

    # --------------------------------------------------------------------- memory

    def empty(self, shape, dtype):
        return wrap(np.empty(shape, dtype.numpy))

    def full(self, shape, value, dtype):
        return wrap(np.broadcast_to(pack(np.array(value, object), dtype), shape))

    def from_numpy(self, array):
        flat = np.require(array, requirements=["C", "ALIGNED", "WRITEABLE"]).reshape(-1)
        return TensorData(
            Storage(flat, from_numpy_dtype(array.dtype), "toy"), array.shape
        )

    def to_numpy(self, a):
        return a.array()

    def copy(self, a, dtype):
        return wrap(a.array(), dtype)

    def copy_into(self, out, a):
        out.array()[...] = a.array().copy()  # the two may overlap

    # ---------------------------------------------------- elementwise, reductions

    def map(self, fn, a, dtype=None, out=None):
        kind = dtype or a.dtype
        return put(out, compute(fn, kind, a.array()), kind)

    def zip(self, fn, a, b, dtype=None, out=None):
        kind = dtype or a.dtype
        return put(out, compute(fn, kind, a.array(), b.array()), kind)

    def where(self, condition, a, b, out=None):
        return put(out, np.where(condition.array(), a.array(), b.array()), a.dtype)

    @quiet
    def reduce(self, fn, a, dims, start, dtype=None):
        kind = dtype or a.dtype
        if not kind.is_floating_point and math.isfinite(start):
            start = int(start)
        shape = tuple(1 if i in dims else n for i, n in enumerate(a.shape))
        order = [i for i in range(a.dims) if i not in dims] + list(dims) * (a.dims > 0)
        lines = math.prod(shape)
        rows = a.array().transpose(order).reshape(lines, a.size // max(lines, 1))
        made = np.frompyfunc(fn, 2, 1).reduce(rows.astype(object), 1, initial=start)
        return wrap(pack(made, kind).reshape(shape))

    def argmax(self, a, dim):
        return wrap(a.array().argmax(dim if a.dims else None, keepdims=True), int64)

    def argmin(self, a, dim):
        return wrap(a.array().argmin(dim if a.dims else None, keepdims=True), int64)

    def cumsum(self, a, dim):
        line = np.cumsum(np.atleast_1d(a.array()), dim, dtype=a.dtype.numpy)
        return wrap(line.reshape(a.shape))

    def sort(self, a, dim, descending):
        array = np.atleast_1d(a.array())
        # Turned around before and after, equal elements keep their order.
        turned = np.flip(array, dim) if descending else array
        order = np.argsort(turned, dim, kind="stable")
        if descending:
            order = array.shape[dim] - 1 - np.flip(order, dim)
        values = np.take_along_axis(array, order, dim).reshape(a.shape)
        return wrap(values), wrap(order.reshape(a.shape), int64)

    @quiet
    def matmul(self, a, b):
        return wrap(np.matmul(a.array(), b.array()))

    def gather(self, a, dim, index):
        array, i = np.atleast_1d(a.array()), np.atleast_1d(index.array())
        return wrap(array[places("gather", array, dim, i)].reshape(index.shape))

    def scatter_add(self, a, dim, index, src, out=None):
        made, i = np.atleast_1d(a.array()).copy(), np.atleast_1d(index.array())
        added = np.atleast_1d(src.array())[tuple(slice(n) for n in i.shape)]
        np.add.at(made, places("scatter_add", made, dim, i), added)
        return self.into(out, wrap(made.reshape(a.shape)))

    def index_copy_(self, out, dim, index, src):
        target, source = np.atleast_1d(out.array()), np.atleast_1d(src.array())
        check("index_copy_", index.array(), target.shape[dim], dim)
        target, source = np.moveaxis(target, dim, 0), np.moveaxis(source, dim, 0).copy()
        for place, slice_ in zip(index.array().reshape(-1), source):
            target[place] = slice_  # of several, the last one wins

    # ---------------------------------------------------- convolution and pooling

    def conv2d(self, x, weight, bias, stride, padding, dilation, groups):
        windows = Windows(x.shape, weight.shape[2:], stride, padding, dilation)
        out = np.zeros((len(x.array()), len(weight.array()), *windows.counts))
        pixels, w = grouped(x.array(), groups, 1), grouped(weight.array(), groups, 0)
        sums = grouped(out, groups, 1)
        for tap, there, at in windows.taps():
            sums[there] += np.einsum("ngchw,goc->ngohw", pixels[at], w[(..., *tap)])
        return wrap(out if bias is None else out + bias.array()[:, None, None], x.dtype)

    def conv2d_backward_input(
        self, grad, weight, x_shape, stride, padding, dilation, groups
    ):
        windows = Windows(x_shape, weight.shape[2:], stride, padding, dilation)
        out = np.zeros(x_shape)
        g, w = grouped(grad.array(), groups, 1), grouped(weight.array(), groups, 0)
        pixels = grouped(out, groups, 1)
        for tap, there, at in windows.taps():
            pixels[at] += np.einsum("ngohw,goc->ngchw", g[there], w[(..., *tap)])
        return wrap(out, grad.dtype)

    def conv2d_backward_weight(
        self, grad, x, weight_shape, stride, padding, dilation, groups
    ):
        windows = Windows(x.shape, weight_shape[2:], stride, padding, dilation)
        out = np.zeros(weight_shape)
        g, pixels = grouped(grad.array(), groups, 1), grouped(x.array(), groups, 1)
        sums = grouped(out, groups, 0)
        for tap, there, at in windows.taps():
            sums[(..., *tap)] = np.einsum("ngohw,ngchw->goc", g[there], pixels[at])
        return wrap(out, grad.dtype)

    def max_pool2d(self, x, kernel, stride, padding, dilation):
        windows = Windows(x.shape, kernel, stride, padding, dilation)
        shape = (*x.shape[:2], *windows.counts)
        best, index = np.full(shape, -np.inf, x.dtype.numpy), np.full(shape, -1)
        numbers = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
        for _, there, at in windows.taps():
            new, old, number = x.array()[at], best[there], index[there]
            wins = (new > old) | (np.isnan(new) & ~np.isnan(old)) | (number < 0)
            old[wins] = new[wins]
            number[wins] = np.broadcast_to(numbers[at], wins.shape)[wins]
        return wrap(best), wrap(np.maximum(index, 0), int64)

    def max_pool2d_backward(self, grad, index, x_shape):
        out = np.zeros((*x_shape[:2], math.prod(x_shape[2:])), grad.dtype.numpy)
        n, c = np.indices(x_shape[:2])[..., None, None]
        np.add.at(out, (n, c, index.array()), grad.array())
        return wrap(out.reshape(x_shape))

    def avg_pool2d(self, x, kernel, stride, padding, count_include_pad):
        windows = Windows(x.shape, kernel, stride, padding)
        out = np.zeros((*x.shape[:2], *windows.counts))
        for _, there, at in windows.taps():
            out[there] += x.array()[at]
        return wrap(out / windows.sizes(count_include_pad), x.dtype)

    def avg_pool2d_backward(
        self, grad, x_shape, kernel, stride, padding, count_include_pad
    ):
        windows = Windows(x_shape, kernel, stride, padding)
        out, share = np.zeros(x_shape), grad.array() / windows.sizes(count_include_pad)
        for _, there, at in windows.taps():
            out[at] += share[there]
        return wrap(out, grad.dtype)

    def uniform(self, shape, dtype, seed, offset):
        drawn = words(math.prod(shape), seed, offset).astype(np.int64)
        return wrap(((drawn >> 8) / 2**24).reshape(shape), dtype)

    def normal(self, shape, dtype, seed, offset):
        count = math.prod(shape)
        drawn = words(count + count % 2, seed, offset).reshape(-1, 2)
        pairs = [operators.box_muller(*pair) for pair in drawn.tolist()]
        return wrap(np.array(pairs).reshape(-1)[:count].reshape(shape), dtype)

    def randint(self, low, high, shape, dtype, seed, offset):
        drawn = low + (words(math.prod(shape), seed, offset) * (high - low) >> 32)
        return wrap(drawn.astype(np.int64).reshape(shape), dtype)

    def dropout(self, x, p, seed, offset):
        kept = words(x.size, seed, offset).reshape(x.shape) >= p * 2**32
        scale = x.dtype.numpy.type(operators.reciprocal(1.0 - p))
        return wrap(np.where(kept.astype(bool), x.array() * scale, 0), x.dtype)
