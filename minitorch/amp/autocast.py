"""A region in which operations choose their own type.

With this file `with autocast("cuda", dtype=bfloat16)` lets products (`linear`,
`matmul`, convolution, attention) take half types, where they are many times faster, and
keeps float32 for what needs its range or its digits: exponentials, sums, norms, losses.

        weight (float32, a leaf) --cast, once for the region--+
        x (float32) -------------cast---------------------- linear -> bfloat16
                                                              |
                            cross_entropy (float32) <--cast---+

Casts are recorded, so that gradients come back in the types that the forward pass had,
and those of weights in float32. The lists are PyTorch's for CUDA. What is in none of
them runs in the types that it is given, and mixed operands in the wider one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import minitorch.dtypes as dtypes
from minitorch.autodiff import grad_mode
from minitorch.backend import available_devices
from minitorch.dtypes import DType, bfloat16, float16, float32
from minitorch.functions import elementwise as e
from minitorch.functions import indexing, norm, reduce, softmax
from minitorch.functions.activation import Softplus
from minitorch.functions.autocasting import FIRST, FLOAT32, LOWER, WIDEST
from minitorch.functions.conv import Conv2d
from minitorch.functions.linear import BiasActivation, Linear
from minitorch.functions.linear_cross_entropy import LinearCrossEntropy
from minitorch.functions.matmul import MatMul, VectorProduct
from minitorch.functions.operands import cast as converted
from minitorch.tensor import Tensor
from minitorch.warn import warn

# What is made of several of these is decorated where it stands: the losses, `norm`,
# `einsum`, `scaled_dot_product_attention`.
POLICIES: dict[type, str] = {
    **dict.fromkeys((MatMul, VectorProduct, Linear, Conv2d, LinearCrossEntropy), LOWER),
    **dict.fromkeys(
        (
            e.Acos, e.Cosh, e.Exp, e.Expm1, e.Log, e.Log1p, e.Log2, e.Log10, e.Pow,
            e.Reciprocal, e.Rsqrt, e.Sinh, Softplus,
            softmax.Softmax, softmax.LogSoftmax, reduce.LogSumExp, reduce.Sum,
            reduce.Prod, reduce.Cumsum, reduce.Cumprod, norm.LayerNorm,
            norm.LayerNormTo, norm.DropoutResidualLayerNorm, norm.RMSNorm,
        ),
        FLOAT32,
    ),
    **dict.fromkeys(
        (indexing.ScatterAdd, indexing.IndexAdd, indexing.IndexCopy, BiasActivation),
        WIDEST,
    ),
    norm.BatchNorm: FIRST,
}  # fmt: skip

# Whose operands may differ in their types because of that.
MIXED = {
    "batch_norm", "bias_activation", "conv2d", "dropout_residual_layer_norm",
    "layer_norm", "linear", "linear_cross_entropy", "matmul", "rms_norm", "scatter_add",
}  # fmt: skip


class Mode:
    """What holds in a region, `grad_mode.autocast`.

    Attributes:
        types: the lower type of each kind of device on which there is autocasting.
        cache: weights that have been cast, by their ids; None: each time anew.
    """

    def __init__(
        self, types: dict[str, DType], cache: dict[Any, Any] | None = None
    ) -> None:
        self.types = types
        self.cache = cache

    def afresh(self) -> Mode:
        """The same types, with nothing cast yet."""
        return Mode(self.types, None if self.cache is None else {})

    def target(self, tensors: Sequence[Any]) -> DType | None:
        """The lower type where the first tensor is."""
        for x in tensors:
            if isinstance(x, Tensor):
                return self.types.get(x.raw.storage.device.partition(":")[0])
        return None

    def casts(self, name: str, tensors: Sequence[Any]) -> bool:
        """Whether the operation `name` brings these operands to one type."""
        given = [x for x in tensors if x is not None]
        return name in MIXED and bool(self.target(given)) and all(map(_eligible, given))

    def cast(self, op: type, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `op.apply` as its policy wants them."""
        policy = POLICIES.get(op)
        lower = None if policy is None else self.target(args)
        if policy is None or lower is None:
            return args
        if op is not Linear:
            return tuple(self._cast_all(policy, lower, args))
        # Products of halves are summed up in float32, with a bias that stays so.
        rest = self._cast_all(FLOAT32, lower, args[2:])
        return *self._cast_all(policy, lower, args[:2]), *rest

    def run(
        self, policy: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """fn(*args, **kwargs), its tensors cast, without autocasting inside of it."""
        lower = self.target((*args, *kwargs.values()))
        if lower is None:
            return fn(*args, **kwargs)
        args = self._cast_all(policy, lower, args)
        values = self._cast_all(policy, lower, tuple(kwargs.values()))
        grad_mode.autocast = None
        try:
            return fn(*args, **dict(zip(kwargs, values)))
        finally:
            grad_mode.autocast = self

    def _cast_all(self, policy: str, lower: DType, args: Sequence[Any]) -> list[Any]:
        if policy == LOWER:
            return [self._lowered(x, lower) if _eligible(x) else x for x in args]
        wanted = float32
        if policy != FLOAT32:
            kinds = [x.dtype for x in args if _eligible(x)]
            if not kinds:
                return list(args)
            first = policy == FIRST
            wanted = kinds[0] if first else functools.reduce(dtypes.promote, kinds)
        return [converted(x, wanted) if _eligible(x) else x for x in args]

    def _lowered(self, x: Tensor, lower: DType) -> Tensor:
        """`x` in the lower type; a weight is cast once for the region."""
        weight = x.is_leaf and x.requires_grad and x.dtype is float32
        if x.dtype is lower or self.cache is None or not (weight and x._base is None):
            return converted(x, lower)
        key, version = (id(x), lower, bool(grad_mode.enabled)), x._version
        found = self.cache.get(key)
        if found is None or found[1] is not x.raw or found[2] != version:
            # It holds the weight, whose id nobody else can have then.
            found = self.cache[key] = (x, x.raw, version, converted(x, lower))
        return found[3]


def _eligible(x: Any) -> bool:
    """Whether autocast may change the type of `x`: float64 is somebody's choice."""
    if not isinstance(x, Tensor):
        return False
    dtype = x.raw.storage.dtype
    return dtype is float32 or dtype.half


class autocast:
    """Let operations of a `with` block, or of a function, choose their types.

        with minitorch.autocast("cpu", dtype=minitorch.bfloat16):
            loss = loss_fn(model(x), y)

    Only the forward pass and the loss belong into the region; `backward()` runs in the
    types of the forward pass anyway. Regions may be nested; `enabled=False` switches
    autocasting off for a part. It holds in this thread.

    Args:
        device_type: the kind of device: "cuda", "cpu".
        dtype: for the operations that gain by it: float16, bfloat16, or float32, where
            nothing is lowered. None: float16 on "cuda", bfloat16 elsewhere.
        enabled: whether it does anything.
        cache_enabled: whether a weight is cast once for the whole region, rather than
            for each use; None: as around this region, at first yes.

    Errors: RuntimeError for a device that does not exist, TypeError for another dtype.
    Where no GPU can be used, "cuda" is a warning and does nothing, as in PyTorch.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        _check_device("autocast", device_type)
        self.device_type = device_type
        self.dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if self.dtype not in (float16, bfloat16, float32):
            raise TypeError(
                f"autocast: dtype is {dtype!r}; expected float16, bfloat16 or float32"
            )
        self.enabled = bool(enabled) and usable("autocast", device_type)
        self.cache_enabled = cache_enabled
        self._before: list[Mode | None] = []

    def __enter__(self) -> autocast:
        before: Mode | None = grad_mode.autocast
        self._before.append(before)
        types = {} if before is None else dict(before.types)
        types.pop(self.device_type, None)
        if self.enabled:
            types[self.device_type] = self.dtype
        cache = {} if before is None else before.cache
        if self.cache_enabled is not None:
            cache = (cache or {}) if self.cache_enabled else None
        # An empty mode remains one, because it knows what is cached around it.
        grad_mode.autocast = Mode(types, cache) if types or before else None
        return self

    def __exit__(self, *exc: object) -> None:
        grad_mode.autocast = self._before.pop()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        given = self.device_type, self.dtype, self.enabled, self.cache_enabled

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with autocast(*given):  # one for each thread and each level of recursion
                return fn(*args, **kwargs)

        return call


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operations on this kind of device choose their types here."""
    mode: Mode | None = grad_mode.autocast
    return mode is not None and device_type in mode.types


def get_autocast_dtype(device_type: str) -> DType:
    """The lower type of the region around, or that which a region would have."""
    mode: Mode | None = grad_mode.autocast
    usual = float16 if device_type == "cuda" else bfloat16
    return usual if mode is None else mode.types.get(device_type, usual)


def _check_device(name: str, device_type: Any) -> None:
    if device_type not in available_devices():
        raise RuntimeError(
            f"{name}: device_type is {device_type!r}; expected a kind of device, one "
            f"of {', '.join(map(repr, available_devices()))}"
        )


def usable(name: str, device_type: str) -> bool:
    """Whether the device can be used; a warning where there is no GPU."""
    from minitorch import cuda

    if device_type != "cuda" or cuda.is_available():
        return True
    warn(f"{name}: no GPU can be used here, so that it does nothing on 'cuda'")
    return False
