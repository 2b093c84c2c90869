"""What a backend must offer, and how a device name finds its backend.

With this file one can get the backend of a device (`get_backend("cpu")`), list what is
installed (`available_devices`), and read, in `Backend`, every function that a new
backend has to bring. A backend is a module (or any object) with these functions. It is
found through the entry-point group `minitorch.backends`, so another package can add
one, and it is loaded when a tensor first asks for it.

Conventions that hold for all functions of `Backend`:

- Tensors come and go as `TensorData`. Any strides and any offset are allowed on input,
  negative strides too. Outputs are new and contiguous, except where `out` is given.
- Callers have checked shapes, devices and dtypes (`minitorch/functions` does); floating
  inputs of one call share one dtype unless a line says otherwise.
- Empty tensors (a size of 0) are legal everywhere.
- `fn` is a function of `minitorch/operators.py`, or a user's own scalar function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]


class Backend(Protocol):
    """The functions of one backend. N, C, H, W: batch, channels, height, width."""

    # ------------------------------------------------------------------ memory

    def empty(self, shape: Shape, dtype: DType) -> TensorData:
        """A contiguous tensor whose elements have no particular value."""

    def full(self, shape: Shape, value: float, dtype: DType) -> TensorData:
        """A contiguous tensor with `value` everywhere."""

    def from_numpy(self, array: np.ndarray) -> TensorData:
        """A tensor with the array's elements; shares its memory if the device can."""

    def to_numpy(self, a: TensorData) -> np.ndarray:
        """A NumPy array with a's elements; shares memory if the device can."""

    def copy(self, a: TensorData, dtype: DType) -> TensorData:
        """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""

    def copy_into(self, out: TensorData, a: TensorData) -> None:
        """out[...] = a, any strides on both; a already has out's shape and dtype."""

    def synchronize(self) -> None:
        """Wait until all work that was started is done."""

    # ------------------------------------------------------------- elementwise

    def map(
        self,
        fn: Callable,
        a: TensorData,
        dtype: DType | None = None,
        out: TensorData | None = None,
    ) -> TensorData:
        """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given."""

    def zip(
        self,
        fn: Callable,
        a: TensorData,
        b: TensorData,
        dtype: DType | None = None,
        out: TensorData | None = None,
    ) -> TensorData:
        """out[i] = fn(a[i], b[i]); a and b broadcast. `out` may be a or b."""

    def where(self, condition: TensorData, a: TensorData, b: TensorData) -> TensorData:
        """out[i] = a[i] if condition[i] else b[i]; all three broadcast."""

    # --------------------------------------------------------------- reductions

    def reduce(
        self,
        fn: Callable,
        a: TensorData,
        dims: Sequence[int],
        start: float,
        dtype: DType | None = None,
    ) -> TensorData:
        """Fold `fn` over `dims`, from its identity `start`; they keep a size of 1.

        The result does not depend on the number of threads.
        """

    def argmax(self, a: TensorData, dim: int) -> TensorData:
        """int64 positions of the first maximum along `dim` (kept as 1); NaN wins."""

    def argmin(self, a: TensorData, dim: int) -> TensorData:
        """int64 positions of the first minimum along `dim` (kept as 1); NaN wins."""

    def cumsum(self, a: TensorData, dim: int) -> TensorData:
        """out[i] = a[0] + ... + a[i] along `dim`."""

    def sort(
        self, a: TensorData, dim: int, descending: bool
    ) -> tuple[TensorData, TensorData]:
        """Sorted values and their int64 positions; stable; NaN is above all numbers."""

    # ------------------------------------------------------------------- matmul

    def matmul(self, a: TensorData, b: TensorData) -> TensorData:
        """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

        Both have two or more dims. Any dtype but bool.
        """

    # ---------------------------------------------------------- bias and activation

    def bias_activation(
        self,
        x: TensorData,
        bias: TensorData,
        fn: Callable | None,
        out: TensorData | None = None,
    ) -> TensorData:
        """out = fn(x + bias), or x + bias where `fn` is None: x [R, N], bias [N].

        Into `out` [R, N] if given, which may be x. Floating dtypes.
        """

    def bias_activation_backward(
        self, grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
    ) -> TensorData:
        """The gradient for x [R, N]: fn_backward(grad, x + bias)."""

    # ----------------------------------------------------------------- indexing

    def gather(self, a: TensorData, dim: int, index: TensorData) -> TensorData:
        """out[i, j] = a[index[i, j], j] for dim = 0; out has index's shape.

        Raises IndexError where an index is outside [0, a.shape[dim]).
        """

    def scatter_add(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData
    ) -> TensorData:
        """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0."""

    def index_select(self, a: TensorData, dim: int, index: TensorData) -> TensorData:
        """The slices `index` [n] of `dim`, in that order. IndexError as in gather."""

    def index_add(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData
    ) -> TensorData:
        """A copy of a with src's slice i added to slice index[i] of `dim`."""

    def index_copy_(
        self, out: TensorData, dim: int, index: TensorData, src: TensorData
    ) -> None:
        """Write src's slice i into slice index[i] of out's `dim`; the last one wins."""

    # ------------------------------------------------------------- convolution

    def conv2d(
        self,
        x: TensorData,
        weight: TensorData,
        bias: TensorData | None,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW].

        Cross-correlation, as in all deep-learning libraries;
        OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.
        """

    def conv2d_backward_input(
        self,
        grad: TensorData,
        weight: TensorData,
        x_shape: Shape,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """The gradient for x [N, C, H, W] from grad [N, O, OH, OW]."""

    def conv2d_backward_weight(
        self,
        grad: TensorData,
        x: TensorData,
        weight_shape: Shape,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """The gradient for weight [O, C/groups, KH, KW] from grad [N, O, OH, OW]."""

    # ----------------------------------------------------------------- pooling

    def max_pool2d(
        self, x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
    ) -> tuple[TensorData, TensorData]:
        """x [N, C, H, W] -> maxima and their int64 positions h * W + w in the plane.

        The first maximum of a window wins; NaN counts as the largest.
        """

    def max_pool2d_backward(
        self, grad: TensorData, index: TensorData, x_shape: Shape
    ) -> TensorData:
        """grad [N, C, OH, OW] added up at the positions `index` of each plane."""

    def avg_pool2d(
        self,
        x: TensorData,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        count_include_pad: bool,
    ) -> TensorData:
        """x [N, C, H, W] -> means of windows; padding counts as 0, or not at all."""

    def avg_pool2d_backward(
        self,
        grad: TensorData,
        x_shape: Shape,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        count_include_pad: bool,
    ) -> TensorData:
        """The gradient for x [N, C, H, W] from grad [N, C, OH, OW]."""

    # ------------------------------------------------- softmax and cross-entropy

    def softmax(self, a: TensorData, dim: int) -> TensorData:
        """exp(a - max) / sum(exp(a - max)) along `dim`."""

    def softmax_backward(
        self, grad: TensorData, out: TensorData, dim: int
    ) -> TensorData:
        """out * (grad - sum(grad * out)) along `dim`."""

    def log_softmax(self, a: TensorData, dim: int) -> TensorData:
        """a - max - log(sum(exp(a - max))) along `dim`."""

    def log_softmax_backward(
        self, grad: TensorData, out: TensorData, dim: int
    ) -> TensorData:
        """grad - exp(out) * sum(grad) along `dim`."""

    def cross_entropy(
        self, logits: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

        losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n]
        is `ignore_index`. Raises IndexError for another target outside [0, C).
        """

    def cross_entropy_backward(
        self,
        grad: TensorData,
        logits: TensorData,
        target: TensorData,
        logsumexp: TensorData,
        ignore_index: int,
    ) -> TensorData:
        """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0."""

    def mean_loss(
        self, losses: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """The mean [] of losses [N] with another target than `ignore_index`, and the
        share 1 / count [] that each of them has in it. NaN and infinity for none."""

    # ------------------------------------------------------------ normalization

    def layer_norm(
        self,
        x: TensorData,
        weight: TensorData | None,
        bias: TensorData | None,
        eps: float,
    ) -> tuple[TensorData, TensorData, TensorData]:
        """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R].

        out = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps) with
        the biased variance of each row.
        """

    def layer_norm_backward(
        self,
        grad: TensorData,
        x: TensorData,
        mean: TensorData,
        rstd: TensorData,
        weight: TensorData | None,
    ) -> tuple[TensorData, TensorData, TensorData]:
        """Gradients for x [R, D], weight [D] and bias [D]."""

    def dropout_residual_layer_norm(
        self,
        x: TensorData,
        residual: TensorData,
        weight: TensorData | None,
        bias: TensorData | None,
        p: float,
        seed: int,
        offset: int,
        eps: float,
    ) -> tuple[TensorData, TensorData, TensorData]:
        """layer_norm(dropout(x) + residual), all [R, D]: out, mean [R], rstd [R].

        The zeros are those of `dropout(x, p, seed, offset)`.
        """

    def dropout_residual_layer_norm_backward(
        self,
        grad: TensorData,
        x: TensorData,
        residual: TensorData,
        mean: TensorData,
        rstd: TensorData,
        weight: TensorData | None,
        p: float,
        seed: int,
        offset: int,
    ) -> tuple[TensorData, TensorData, TensorData, TensorData]:
        """Gradients for x [R, D], residual [R, D], weight [D] and bias [D]."""

    def batch_norm(
        self,
        x: TensorData,
        weight: TensorData | None,
        bias: TensorData | None,
        eps: float,
    ) -> tuple[TensorData, TensorData, TensorData]:
        """x [N, C, L], weight and bias [C] -> out, mean [C], biased variance [C]."""

    def batch_norm_backward(
        self,
        grad: TensorData,
        x: TensorData,
        mean: TensorData,
        variance: TensorData,
        weight: TensorData | None,
        eps: float,
    ) -> tuple[TensorData, TensorData, TensorData]:
        """Gradients for x [N, C, L], weight [C] and bias [C] in training mode."""

    # ------------------------------------------------------------------- sparse
    #
    # A [M, K] in compressed sparse rows: row i has the elements p from crow[i] to
    # crow[i + 1] - 1, values[p] in column col[p]. crow [M + 1] and col [nnz] are both
    # int64 or both int32, and have been checked. Columns come in any order; of a place
    # that comes twice, the sum counts.

    def csr_matmul(
        self, crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
    ) -> TensorData:
        """A [M, K] @ dense [K, N] -> [M, N]. Any dtype but bool."""

    def csr_sample(
        self, crow: TensorData, col: TensorData, a: TensorData, b: TensorData
    ) -> TensorData:
        """a [M, N], b [K, N] -> [nnz]: out[p] = sum_j a[i, j] b[col[p], j] in row i."""

    def csr_transpose(
        self, crow: TensorData, col: TensorData, cols: int
    ) -> tuple[TensorData, TensorData, TensorData]:
        """crow [K + 1] and col [nnz] of A^T, and order int64 [nnz].

        Element p of A^T is element order[p] of A; within a row of A^T the elements are
        in the order in which they are in A.
        """

    def csr_pattern(self, a: TensorData) -> tuple[TensorData, TensorData]:
        """Where a [M, K] is not 0 (NaN is not): crow int64 [M + 1], col int64 [nnz]."""

    def csr_gather(
        self, crow: TensorData, col: TensorData, a: TensorData
    ) -> TensorData:
        """a [M, K] -> [nnz]: out[p] = a[i, col[p]] in row i."""

    def csr_to_dense(
        self, crow: TensorData, col: TensorData, values: TensorData, cols: int
    ) -> TensorData:
        """A as a dense matrix [M, cols]."""

    # ------------------------------------------------------------------- random

    def uniform(self, shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
        """Uniform numbers in [0, 1): element i from word i % 4 of Philox block
        `offset + i // 4` as (word >> 8) / 2**24.

        The block number's low and high 32 bits are `low` and `high` of
        `operators.philox`, the seed's are `key0` and `key1`. float64 has the same
        values as float32.
        """

    def normal(self, shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
        """Standard normal numbers: elements 4b, 4b+1 from `operators.box_muller` of
        words 0 and 1 of block offset + b, elements 4b+2, 4b+3 from words 2 and 3."""

    def randint(
        self, low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
    ) -> TensorData:
        """Integers in [low, high): low + (word * (high - low) >> 32); words as in
        uniform. high - low is at most 2**31."""

    def dropout(self, x: TensorData, p: float, seed: int, offset: int) -> TensorData:
        """x / (1 - p) where word i >= p * 2**32 (words as in uniform), else 0.

        The word belongs to the row-major index of the element. 1 / (1 - p) is rounded
        to x's dtype before it multiplies.
        """

    # --------------------------------------------------------------- optimizers

    def sgd_step(
        self,
        params: Sequence[TensorData],
        grads: Sequence[TensorData],
        momentum_buffers: Sequence[TensorData] | None,
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
        first: bool,
    ) -> None:
        """One step in place on all tensors; `first` sets the buffers to the gradient.

        g = grad + weight_decay * p; buf = momentum * buf + (1 - dampening) * g;
        p -= lr * (g + momentum * buf if nesterov else buf if momentum else g).
        """

    def adam_step(
        self,
        params: Sequence[TensorData],
        grads: Sequence[TensorData],
        exp_avgs: Sequence[TensorData],
        exp_avg_sqs: Sequence[TensorData],
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        decoupled: bool,
    ) -> None:
        """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1."""


GROUP = "minitorch.backends"
loaded_backends: dict[str, Any] = {}

# What to do about a device that cannot be loaded, by the module that is missing.
_HINTS = {
    "numba": "pip install numba",
    "cuda_ops": "this installation has no CUDA backend",
    "numba_cuda": "pip install -e '.[cuda13]' (or [cuda12], for older drivers)",
    "cuda": "pip install -e '.[cuda13]' (or [cuda12], for older drivers)",
    "cuda device": "run on a machine with an NVIDIA GPU and its driver (Google Colab "
    "lends one), or set NUMBA_ENABLE_CUDASIM=1 to use Numba's slow simulator",
    "mojo_ops": "this installation has no Mojo backend",
    "mojo": "pip install 'minitorch[mojo]' (in a clone: pip install -e '.[mojo]')",
    "mojo platform": 'use the device "cpu" here; Mojo runs on Linux with glibc 2.34 or '
    "newer (on Windows: in WSL) and on macOS with Apple silicon",
}


def _registered() -> dict[str, Any]:
    """The entry points of all installed backends, by device name."""
    from importlib.metadata import entry_points  # takes 20 ms to import

    return {point.name: point for point in entry_points(group=GROUP)}


def available_devices() -> list[str]:
    """The device names of all installed backends (not all may load)."""
    return sorted(_registered())


def get_backend(device: str) -> Any:
    """The backend of `device`, loaded at the first call.

    Raises:
        ValueError: no backend is registered under that name.
        RuntimeError: the backend is registered but cannot be loaded here.
    """
    backend = loaded_backends.get(device)
    if backend is None:
        backend = loaded_backends[device] = _load(device)
    return backend


def _load(device: str) -> Any:
    points = _registered()
    if device not in points:
        raise ValueError(
            f"device: there is no device {device!r}; installed are "
            f"{', '.join(map(repr, sorted(points))) or 'none (run: pip install -e .)'}"
        )
    try:
        return points[device].load()
    except ImportError as error:
        hint = _HINTS.get((error.name or "").split(".")[0], "reinstall its package")
        raise RuntimeError(
            f"device {device!r} cannot be used here: {error}. What to do: {hint}"
        ) from error
