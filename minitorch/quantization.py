"""Weights of one byte, or of four bits: the same model, and less for a token to read.

With this file one can quantize the linear layers of a trained model in place
(`quantize_(model, "int8")`), for generation, where reading the weights takes the time.
The parts are there, too: `quantize` makes whole numbers of a matrix, `dequantize` the
floats they stand for, `QuantizedLinear` is the layer, `nn.functional.quantized_linear`
its product.

    w [N, K]   scale[n] = max |w[n]| / 127       q = round(w / scale)  in -127 .. 127

Each row, which makes one output, has a scale of its own, so that a large weight costs
its own row precision alone. A weight is off by scale / 2 at most. What is computed with
stays floating: inputs, sums and outputs.

With "int4" it is 7 in place of 127, and each group of 64 numbers of a row has a scale:
4.5 bits a weight, since scales are float32. Two numbers lie in a byte (`pack`).

Source: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", 2018; Dettmers et al., "LLM.int8(): 8-bit matrix
multiplication for transformers at scale", 2022; for groups Shen et al., "Q-BERT:
Hessian based ultra low precision quantization of BERT", 2020. Names are torchao's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import zeros
from minitorch.dtypes import DType, computed, int8
from minitorch.nn.linear import Linear, check_sizes
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.nn.replacing import replace_
from minitorch.tensor import Tensor

M = TypeVar("M", bound=Module)

LARGEST = {"int8": 127, "int4": 7}  # -128 and -8 have no counterparts
KINDS = tuple(LARGEST)
GROUP_SIZES = 32, 64, 128, 256  # whole vectors of a CPU, and shares of a warp


@no_grad()
def quantize(
    weight: Tensor, kind: str = "int8", group_size: int = 64
) -> tuple[Tensor, Tensor]:
    """Whole numbers and scales for a weight: float [N, K] -> int8 [N, K], [N]

    weight[n, k] is nearly scale[n] * q[n, k]. For "int4" a row is cut into G groups of
    `group_size` numbers, where zeros fill up the last one -> int8 [N, G, group_size /
    2], as of `pack`, and [N, G]. The scales have the weight's dtype, of a half type
    float32; a row, or group, of zeros has the scale 0.

    Raises:
        TypeError: the weight is not floating.
        ValueError: it is no matrix, or not finite; the kind or size is unknown.
    """
    _check_kind("quantize", kind, group_size)
    if not weight.dtype.is_floating_point:
        raise TypeError(f"quantize: the weight is {weight.dtype.name}; expected floats")
    if weight.dim() != 2:
        raise ValueError(f"quantize: the weight is {weight.raw.shape}; expected (N, K)")
    w = weight.detach().to(computed(weight.dtype))
    most = LARGEST[kind]
    if kind == "int4":
        w = F.pad(w, (0, -w.shape[1] % group_size)).unflatten(1, (-1, group_size))
    if not w.numel():
        return pack(w) if kind == "int4" else w.to(int8), w.new_zeros(w.shape[:-1])
    largest = w.abs().amax(-1)
    if not largest.isfinite().all():
        raise ValueError("quantize: the weight is not finite; nothing was changed")
    # BEGIN SOLUTION a17.1
    scale = largest / most
    steps = scale.where(scale > 0, scale + 1)
    q = (w / steps.unsqueeze(-1)).round().clamp(-most, most)
    # END SOLUTION a17.1
    return pack(q) if kind == "int4" else q.to(int8), scale


def pack(numbers: Tensor) -> Tensor:
    """Two numbers from -8 to 7 in each byte: [*, S] -> int8 [*, S / 2], S even

        byte[j] = 16 * numbers[S / 2 + j] + numbers[j] + 8

    Bytes that are neighbours hold numbers that are, twice: a vector of bytes becomes
    two of floats, `(byte & 15) - 8` and `byte >> 4`, each beside a vector of inputs as
    they lie. With numbers 0 and 1 in a byte these would have to be shuffled.
    """
    low, high = numbers.chunk(2, -1)
    return (high * 16 + low + 8).to(int8)


@no_grad()
def dequantize(q: Tensor, scale: Tensor, columns: int | None = None) -> Tensor:
    """The floats [N, columns] that `quantize` has rounded to; None: whole groups."""
    if columns is None:
        columns = q.shape[1] * (1 if q.dim() == 2 else 2 * q.shape[2])
    raw = scale.backend.dequantize(q.raw, scale.raw, columns, scale.dtype)
    return scale.wrap(raw)


def _check_kind(caller: str, kind: str, group_size: int) -> None:
    if kind not in KINDS:
        raise ValueError(
            f"{caller}: kind is {kind!r}; expected one of {', '.join(map(repr, KINDS))}"
        )
    if kind == "int4" and group_size not in GROUP_SIZES:
        raise ValueError(
            f"{caller}: group_size is {group_size!r}; expected one of "
            f"{', '.join(map(str, GROUP_SIZES))}"
        )


class QuantizedLinear(Module):
    """y = x @ (scale * q)^T + bias: `nn.Linear` with a weight of whole numbers

    x [*, in_features] -> y [*, out_features]. The buffers q, int8 [out_features,
    in_features], and scale [out_features] are 0 at first: `from_float` and
    `load_state_dict` fill them. They do not learn; x gets its gradient, and so does the
    bias, which stays a parameter. For "int4" their shapes are those of `quantize`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        kind: str = "int8",
        group_size: int = 64,
    ) -> None:
        super().__init__()
        sizes: Any = {"in_features": in_features, "out_features": out_features}
        check_sizes("QuantizedLinear", **sizes)
        self.in_features, self.out_features = in_features, out_features
        w = zeros(out_features, in_features, device=device, dtype=dtype)
        q, scale = quantize(w, kind, group_size)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        row = w.new_zeros(out_features)
        self.register_parameter("bias", Parameter(row) if bias else None)

    @classmethod
    def from_float(
        cls, linear: Linear, kind: str = "int8", group_size: int = 64
    ) -> QuantizedLinear:
        """The same layer with its weight rounded; the bias is the same object."""
        made = cls(0, 0, False)
        made.in_features, made.out_features = linear.in_features, linear.out_features
        made.q, made.scale = quantize(linear.weight, kind, group_size)
        made.register_parameter("bias", linear.bias)
        return made.train(linear.training)

    @property
    def weight(self) -> Tensor:
        """scale * q as floats, made anew at each request: for those who ask for it."""
        return dequantize(self.q, self.scale, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        return F.quantized_linear(x, self.q, self.scale, self.bias)

    def extra_repr(self) -> str:
        packed = self.q.dim() == 3
        kind = f"int4, group_size={2 * self.q.shape[2]}" if packed else "int8"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, weight={kind}"
        )


def quantize_(
    model: M,
    kind: str = "int8",
    filter_fn: Callable[[Linear, str], bool] = lambda linear, name: True,
    group_size: int = 64,
) -> M:
    """Put a `QuantizedLinear` in the place of each `nn.Linear`, in the model itself.

    A weight that is used elsewhere, too, stays there as it is: GPT's head and its
    embedding share one, of which the head gets its own bytes. An optimizer has to be
    made anew, and `load_state_dict` then wants the state of a quantized model.

    Args:
        kind: what weights become: "int8", or "int4" (see `quantize`).
        filter_fn: filter_fn(linear, name) says which layers; all by default. Subclasses
            of `nn.Linear` stay as they are, since nobody knows what they do.
        group_size: numbers that share a scale, of "int4": 32, 64, 128 or 256. Smaller
            groups are more precise, and have more scales to read.

    Returns: the model.

    Raises:
        ValueError: the kind is another, the model is itself an `nn.Linear`, or a layer
            has hooks, or numbers that are not finite; nothing was changed.
    """
    _check_kind("quantize_", kind, group_size)

    def made(linear: Linear) -> QuantizedLinear:
        return QuantizedLinear.from_float(linear, kind, group_size)

    return replace_("quantize_", model, Linear, made, filter_fn)
