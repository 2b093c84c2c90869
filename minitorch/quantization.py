"""Weights of one byte: the same model, a quarter of what a token reads.

With this file one can quantize the linear layers of a trained model in place
(`quantize_(model, "int8")`), for generation, where reading the weights takes the time.
The parts are there, too: `quantize` makes whole numbers of a matrix, `QuantizedLinear`
is the layer, `nn.functional.quantized_linear` its product.

    w [N, K]   scale[n] = max |w[n]| / 127       q = round(w / scale)  in -127 .. 127

Each row, which makes one output, has a scale of its own, so that a large weight costs
its own row precision alone. A weight is off by scale / 2 at most. What is computed with
stays floating: inputs, sums and outputs.

Source: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", 2018; Dettmers et al., "LLM.int8(): 8-bit matrix
multiplication for transformers at scale", 2022. Names are torchao's.
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

KINDS = ("int8",)
LARGEST = 127  # -128 has no counterpart


@no_grad()
def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers and scales for a weight: float [N, K] -> int8 [N, K], [N]

    weight[n, k] is nearly scale[n] * q[n, k]. The scales have the weight's dtype, of a
    half type float32; a row of zeros has the scale 0.

    Raises:
        TypeError: the weight is not floating.
        ValueError: it is no matrix, or not finite.
    """
    if not weight.dtype.is_floating_point:
        raise TypeError(f"quantize: the weight is {weight.dtype.name}; expected floats")
    if weight.dim() != 2:
        raise ValueError(f"quantize: the weight is {weight.raw.shape}; expected (N, K)")
    w = weight.detach().to(computed(weight.dtype))
    if not w.numel():
        return w.to(int8), w.new_zeros(len(w))
    largest = w.abs().amax(1)
    if not largest.isfinite().all():
        raise ValueError("quantize: the weight is not finite; nothing was changed")
    # BEGIN SOLUTION a17.1
    scale = largest / LARGEST
    steps = scale.where(scale > 0, scale + 1)
    q = (w / steps.unsqueeze(1)).round().clamp(-LARGEST, LARGEST)
    # END SOLUTION a17.1
    return q.to(int8), scale


class QuantizedLinear(Module):
    """y = x @ (scale * q)^T + bias: `nn.Linear` with a weight of whole numbers

    x [*, in_features] -> y [*, out_features]. The buffers q, int8 [out_features,
    in_features], and scale [out_features] are 0 at first: `from_float` and
    `load_state_dict` fill them. They do not learn; x gets its gradient, and so does the
    bias, which stays a parameter.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        sizes: Any = {"in_features": in_features, "out_features": out_features}
        check_sizes("QuantizedLinear", **sizes)
        self.in_features, self.out_features = in_features, out_features
        q = zeros(out_features, in_features, device=device, dtype=int8)
        row = zeros(out_features, device=device, dtype=dtype)
        self.register_buffer("q", q)
        self.register_buffer("scale", row.to(computed(row.dtype)))
        self.register_parameter("bias", Parameter(row.clone()) if bias else None)

    @classmethod
    def from_float(cls, linear: Linear) -> QuantizedLinear:
        """The same layer with its weight rounded; the bias is the same object."""
        made = cls(0, 0, False)
        made.in_features, made.out_features = linear.in_features, linear.out_features
        made.q, made.scale = quantize(linear.weight)
        made.register_parameter("bias", linear.bias)
        return made.train(linear.training)

    @property
    def weight(self) -> Tensor:
        """scale * q as floats, made anew at each request: for those who ask for it."""
        return self.q.to(self.scale.dtype) * self.scale.unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        return F.quantized_linear(x, self.q, self.scale, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, weight=int8"
        )


def quantize_(
    model: M,
    kind: str = "int8",
    filter_fn: Callable[[Linear, str], bool] = lambda linear, name: True,
) -> M:
    """Put a `QuantizedLinear` in the place of each `nn.Linear`, in the model itself.

    A weight that is used elsewhere, too, stays there as it is: GPT's head and its
    embedding share one, of which the head gets its own bytes. An optimizer has to be
    made anew, and `load_state_dict` then wants the state of a quantized model.

    Args:
        kind: what weights become; "int8" is all there is.
        filter_fn: filter_fn(linear, name) says which layers; all by default. Subclasses
            of `nn.Linear` stay as they are, since nobody knows what they do.

    Returns: the model.

    Raises:
        ValueError: the kind is another, the model is itself an `nn.Linear`, or a layer
            has hooks, or numbers that are not finite; nothing was changed.
    """
    if kind not in KINDS:
        raise ValueError(
            f"quantize_: kind is {kind!r}; expected one of "
            f"{', '.join(map(repr, KINDS))}"
        )
    return replace_("quantize_", model, Linear, QuantizedLinear.from_float, filter_fn)
