"""Weights that are held at 0 by a mask while the rest learns, as in PyTorch.

With this file one can prune a parameter of a module: its smallest numbers
(`l1_unstructured`), some by chance (`random_unstructured`), whole rows or columns
(`ln_structured`), the smallest of many parameters together (`global_unstructured`), or
what a mask says (`custom_from_mask`). The module keeps its shape and its work:

    weight  ->  weight_orig, a parameter: it learns, under any optimizer that had it
                weight_mask, a buffer of 0 and 1
                weight = weight_orig * weight_mask, made anew before each forward

so state dicts are PyTorch's. Of what is pruned again only what is left counts.
`remove` makes it final, and `is_pruned` asks. Layers that save memory or work in this
way are those of `nn/sparse.py`.

Source: Han, Pool, Tran and Dally, "Learning both weights and connections for efficient
neural networks", 2015.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from minitorch.arguments import dim_in
from minitorch.autodiff import no_grad
from minitorch.creation import ones_like, rand_like
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.nn.utils import parameters_to_vector
from minitorch.tensor import Tensor


class BasePruningMethod:
    """A way to make masks, and the hook that applies one.

    Subclasses define `compute_mask`; `Kind.apply(module, "weight", ...)` prunes.

    Attributes:
        PRUNING_TYPE: what of a pruned parameter is asked about when it is pruned again:
            "unstructured", the numbers that are left; "structured", the slices along
            `dim` that have some; "global", all of it.
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name: str
    dim: int

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of some scores t: a copy of default_mask with more zeros."""
        raise NotImplementedError(f"{type(self).__name__}: define compute_mask")

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def apply_mask(self, module: Module) -> Tensor:
        """weight_orig * weight_mask"""
        orig = getattr(module, f"{self._tensor_name}_orig")
        masked: Tensor = orig * getattr(module, f"{self._tensor_name}_mask")
        return masked

    @no_grad()
    def further(self, t: Tensor, mask: Tensor) -> Tensor:
        """A mask with more zeros: `compute_mask` of what `mask` has left of t."""
        if self.PRUNING_TYPE == "unstructured":
            left = mask.flatten().nonzero().squeeze(1)
            some = t.flatten().index_select(0, left)
            found = self.compute_mask(some, ones_like(some)).to(mask.dtype)
            whole = mask.new_zeros(mask.numel()).index_add_(0, left, found)
            return whole.reshape(mask.shape)
        if self.PRUNING_TYPE == "structured":
            dim = dim_in("prune", t, self.dim)
            others = tuple(d for d in range(t.dim()) if d != dim)
            left = (mask.sum(others) != 0).nonzero().squeeze(1)
            some, kept = (a.index_select(dim, left) for a in (t, mask))
            found = self.compute_mask(some, kept).to(mask.dtype)
            return mask.new_zeros(*mask.shape).index_add_(dim, left, found)
        return self.compute_mask(t, mask)

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any,
        importance_scores: Tensor | None = None, **kwargs: Any,
    ) -> BasePruningMethod:  # fmt: skip
        """Prune module.name, by scores in its place if there are some."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before, param = _hook(module, name), getattr(module, name)
        if before is None and not isinstance(param, Parameter):
            raise TypeError(
                f"prune: {type(module).__name__}.{name} is a {type(param).__name__}; "
                f"expected an nn.Parameter"
            )
        scores = param if importance_scores is None else importance_scores
        if scores.shape != param.shape:
            raise ValueError(
                f"prune: importance_scores are {scores.raw.shape}; expected the shape "
                f"of {name}, {param.raw.shape}"
            )
        scores, mask = scores.detach(), mask_of(module, name)
        if before is None:
            mask = method.compute_mask(scores, mask)
            delattr(module, name)
            module.register_parameter(f"{name}_orig", param)
        else:
            mask = method.further(scores, mask)
            module._forward_pre_hooks.remove(before)
        module.register_buffer(f"{name}_mask", mask)
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    @no_grad()
    def remove(self, module: Module) -> None:
        """Leave the parameter with its zeros, which may then learn again."""
        name = self._tensor_name
        orig = getattr(module, f"{name}_orig")
        orig.copy_(self.apply_mask(module))
        for gone in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, gone)
        module.register_parameter(name, orig)
        module._forward_pre_hooks.remove(self)


class _Counted(BasePruningMethod):
    """Drops `amount`: a whole number, or a float, the share from 0 to 1."""

    def __init__(self, amount: float) -> None:
        whole = isinstance(amount, Integral)
        if amount < 0 or (amount > 1 and not whole):
            raise ValueError(
                f"prune: amount is {amount}; expected a number to drop, or a share as "
                f"a float from 0 to 1"
            )
        self.amount = amount

    def count(self, size: int) -> int:
        """How many of `size` to drop."""
        if not isinstance(self.amount, Integral):
            return round(self.amount * size)
        if self.amount > size:
            raise ValueError(f"prune: amount is {self.amount}; there are {size}")
        return int(self.amount)


class L1Unstructured(_Counted):
    """Drops the numbers that are nearest to 0."""

    @no_grad()
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """default_mask with 0 at `count(t.numel())` places, where |t| is smallest."""
        count = self.count(t.numel())
        # BEGIN SOLUTION a17.2
        mask = default_mask.flatten().clone()
        mask[t.abs().flatten().topk(count, largest=False).indices] = 0
        return mask.reshape(t.shape)
        # END SOLUTION a17.2


class RandomUnstructured(_Counted):
    """Drops numbers by chance."""

    @no_grad()
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """default_mask with 0 at `count(t.numel())` places."""
        chance = 1 - rand_like(t)  # PyTorch drops the largest that it draws
        return L1Unstructured(self.amount).compute_mask(chance, default_mask)


class LnStructured(_Counted):
    """Drops the slices along `dim` that have the smallest n-norms (1, 2 or inf)."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    @no_grad()
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """default_mask with 0 in whole slices."""
        if t.dim() < 2:
            raise ValueError(f"prune: no slices in {t.raw.shape}; expected two dims")
        dim = dim_in("prune", t, self.dim)
        norms = t.norm(self.n, tuple(d for d in range(t.dim()) if d != dim))
        kept = L1Unstructured(self.amount).compute_mask(norms, ones_like(norms))
        shape = [len(kept) if d == dim else 1 for d in range(t.dim())]
        return default_mask * kept.reshape(shape).to(default_mask.dtype)


class CustomFromMask(BasePruningMethod):
    """Drops what a mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """default_mask * mask"""
        if self.mask.shape != t.shape:
            raise ValueError(
                f"prune: the mask is {self.mask.raw.shape}; expected {t.raw.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def mask_of(module: Module, name: str) -> Tensor:
    """The mask of module.name, or ones if it is not pruned."""
    mask: Tensor | None = getattr(module, f"{name}_mask", None)
    return ones_like(getattr(module, name)).detach() if mask is None else mask


def _hook(module: Module, name: str) -> BasePruningMethod | None:
    for hook in module._forward_pre_hooks:
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return hook
    return None


def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Tensor | None = None
) -> Module:
    """Drop the `amount` numbers of module.name that are nearest to 0.

    Args:
        amount: how many, if a whole number, or the share of what is left, as a float.
        importance_scores: numbers in the place of the parameter's own to go by.

    Returns: the module.

    Errors: ValueError for an amount that is no such share, or more than there are.
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Drop `amount` numbers of module.name by chance; see `l1_unstructured`."""
    RandomUnstructured.apply(module, name, amount)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: float, dim: int,
    importance_scores: Tensor | None = None,
) -> Module:  # fmt: skip
    """Drop the `amount` slices along dim with the smallest n-norms: of a `Linear`'s
    weight whole outputs (dim 0) or inputs (dim 1); see `l1_unstructured`."""
    scores = importance_scores
    LnStructured.apply(module, name, amount, n, dim, importance_scores=scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Drop what `mask`, in the parameter's shape, has 0 or False for."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Drop the smallest numbers of many parameters together.

    One bar for all: a layer of large weights keeps more of them than another. All are
    one vector for the method, whose mask is cut into pieces again, a
    `custom_from_mask` for each parameter.

    Args:
        parameters: (module, name) pairs, some of them pruned before.
        pruning_method: `L1Unstructured`, `RandomUnstructured` or one of your own.
        importance_scores: numbers to go by for some of the pairs.
        kwargs: for the method: `amount`, of what is left of all together.
    """
    pairs, given = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured: {pruning_method.__name__} is "
            f"{method.PRUNING_TYPE}; expected a method that is unstructured"
        )
    # BEGIN SOLUTION a17.2
    scores = [given.get((m, n), getattr(m, n)).detach() for m, n in pairs]
    masks = parameters_to_vector([mask_of(m, n) for m, n in pairs])
    found = method.further(parameters_to_vector(scores), masks)
    parts = found.split([score.numel() for score in scores])
    for (module, name), part, score in zip(pairs, parts, scores):
        custom_from_mask(module, name, part.reshape(score.shape))
    # END SOLUTION a17.2


def remove(module: Module, name: str) -> Module:
    """Make the zeros of module.name final: it is a plain parameter again.

    Errors: ValueError if it is not pruned.
    """
    hook = _hook(module, name)
    if hook is None:
        raise ValueError(f"remove: {type(module).__name__}.{name} is not pruned")
    hook.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of this module, or of one below, is held by a mask."""
    return any(
        isinstance(hook, BasePruningMethod)
        for part in module.modules()
        for hook in part._forward_pre_hooks
    )
