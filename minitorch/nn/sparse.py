"""Layers with few weights: prune a network, and train what is left.

With this file one can drop the smallest weights of every `Linear` of a network
(`prune_linears`), and use the `SparseLinear` layers that it leaves: their work and
memory are those of the weights that exist, and only those learn.

    model = Sequential(Linear(784, 256), ReLU(), Linear(256, 10))   # trained
    sparse = prune_linears(model, 0.9)                              # 10 % are left

Two of each four weights is a pattern that tensor cores know (`two_of_four`, a mask for
`nn.utils.prune.custom_from_mask`), since it packs well (`pack_two_of_four` and back).
Here no kernel multiplies by what is packed.

Source: Han, Pool, Tran and Dally, "Learning both weights and connections for efficient
neural networks", 2015; Mishra et al., "Accelerating sparse deep neural networks", 2021.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minitorch.nn.functional as F
from minitorch.creation import tensor
from minitorch.dtypes import int8, int64
from minitorch.functions.sparse import CSRPattern
from minitorch.nn.linear import Linear
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.sparse import SparseCSR, sparse_csr_tensor
from minitorch.tensor import Tensor


class SparseLinear(Module):
    """y = x @ weight^T + bias, where weight is a sparse matrix.

    x [*, in_features] -> y [*, out_features]. The numbers of the weight are the
    parameter `values` [nnz]; where they stand are the buffers `crow_indices` and
    `col_indices`, so that `state_dict()` holds all of it.

    Args:
        weight: [out_features, in_features]; its values are copied.
        bias: [out_features], copied too, or None.
    """

    def __init__(self, weight: SparseCSR, bias: Tensor | None = None) -> None:
        super().__init__()
        if not isinstance(weight, SparseCSR):
            raise TypeError(
                f"SparseLinear: weight is a {type(weight).__name__}; expected a "
                f"SparseCSR; use dense.to_sparse_csr() or prune_linears"
            )
        self.out_features, self.in_features = weight.shape
        if bias is not None and bias.raw.shape != (self.out_features,):
            raise ValueError(
                f"SparseLinear: bias is {bias.raw.shape} and weight {weight.shape}; "
                f"bias must be ({self.out_features},)"
            )
        self.values = Parameter(weight.values().detach().clone())
        self.register_buffer("crow_indices", weight.crow_indices().clone())
        self.register_buffer("col_indices", weight.col_indices().clone())
        self.register_parameter(
            "bias", None if bias is None else Parameter(bias.detach().clone())
        )
        self._key: Any = None
        self._pattern: CSRPattern | None = None

    @property
    def weight(self) -> SparseCSR:
        """The weight [out_features, in_features], with gradients to `values`."""
        crow, col = self.crow_indices, self.col_indices
        # load_state_dict writes new indices (versions), to(device) moves them (raw).
        key = (crow.raw, col.raw, crow._version, col._version)
        if self._pattern is None or self._key != key:
            size = (self.out_features, self.in_features)
            checked = sparse_csr_tensor(crow, col, self.values.detach(), size)
            self._key, self._pattern = key, checked.pattern
        return SparseCSR(self._pattern, self.values)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"SparseLinear: x is {x.raw.shape}; its last dimension must be "
                f"in_features ({self.in_features})"
            )
        rows = x.reshape(math.prod(x.shape[:-1]), self.in_features)
        # The sparse matrix must stand on the left, and wants rows side by side.
        out = (self.weight @ rows.T.contiguous()).T
        if self.bias is not None:
            out = out + self.bias
        return out.reshape(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"nnz={self.values.numel()}, bias={self.bias is not None}"
        )


def prune_weight(weight: Tensor | SparseCSR, amount: float) -> SparseCSR:
    """A matrix without its smallest elements, by absolute value.

    Args:
        weight: [M, K]; a sparse one can be pruned further.
        amount: the share to drop, from 0 to 1, of all M * K elements. Of equal ones
            the last are dropped. Zeros are dropped whatever the amount.
    """
    if not 0.0 <= amount <= 1.0:
        raise ValueError(f"prune: amount is {amount}; expected a share from 0 to 1")
    weight = weight.to_dense() if isinstance(weight, SparseCSR) else weight
    if weight.dim() != 2:
        raise ValueError(f"prune: weight is {weight.raw.shape}; expected a matrix")
    rows, cols = weight.raw.shape
    size = np.abs(weight.detach().cpu().numpy()).reshape(-1)
    kept = np.argsort(-size, kind="stable")[: size.size - round(amount * size.size)]
    places = np.sort(kept[size[kept] != 0])
    crow = np.searchsorted(places, np.arange(rows + 1) * cols)
    values = weight.detach().reshape(-1)[tensor(places, device=weight.device)]
    return sparse_csr_tensor(crow, places % max(cols, 1), values, (rows, cols))


def prune_linears(module: Module, amount: float) -> Module:
    """Put a `SparseLinear` in the place of every `Linear` in a network.

    Each loses the `amount` smallest of its weights (`prune_weight`) and keeps its bias.
    A `SparseLinear` is pruned further, so it can go in steps, with training between.
    The network is changed in place and returned; a single `Linear` gives its
    replacement. An optimizer has to be made anew, for the new parameters.
    """
    return _replace(module, amount, {})


def _replace(module: Module, amount: float, made: dict[int, Module]) -> Module:
    """`made` holds what is done: a module may be used in more than one place."""
    if id(module) not in made:
        made[id(module)] = module
        if isinstance(module, (Linear, SparseLinear)):
            sparse = SparseLinear(prune_weight(module.weight, amount), module.bias)
            made[id(module)] = sparse.train(module.training)
        for name, part in list(module._modules.items()):
            if part is not None:
                module.add_module(name, _replace(part, amount, made))
    return made[id(module)]


# ------------------------------------------------------------------------- two of four


def _fours(name: str, a: Tensor) -> None:
    if a.dim() != 2 or a.raw.shape[1] % 4:
        raise ValueError(
            f"{name}: got {a.raw.shape}; expected (N, K), K a multiple of 4"
        )


def two_of_four(weight: Tensor) -> Tensor:
    """A mask of the two largest of each four neighbours in a row: [N, K] -> bool [N, K]

    By absolute value; of equal ones the first are kept.

    Errors: ValueError if K is no multiple of 4.
    """
    _fours("two_of_four", weight)
    # BEGIN SOLUTION a17.3
    rows, cols = weight.shape
    size = weight.detach().abs().reshape(rows, cols // 4, 4)
    mine, other = size.unsqueeze(3), size.unsqueeze(2)
    place = tensor([0, 1, 2, 3], device=weight.device)
    before = place < place.unsqueeze(1)  # [mine, other]
    beaten = (other > mine) | ((other == mine) & before)
    return (beaten.sum(3) < 2).reshape(weight.shape)
    # END SOLUTION a17.3


def pack_two_of_four(weight: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """What a mask keeps, and where it stood: [N, K / 2], int8 [N, ceil(K / 8)]

    Values stand in the order of their columns. The place of a value among its four, 0
    to 3, takes two bits. A byte has four of these, the first in its lowest bits, so
    those of eight columns; what is behind the last one is 0.

    Args:
        weight: [N, K].
        mask: bool [N, K], of which each four neighbours have two, see `two_of_four`.

    Errors: ValueError for shapes that do not fit, and another number of two in four.
    """
    _fours("pack_two_of_four", weight)
    same = mask.raw.shape == weight.raw.shape
    if not same or (mask.reshape(len(mask), mask.shape[1] // 4, 4).sum(2) != 2).any():
        raise ValueError(
            f"pack_two_of_four: the mask is {mask.raw.shape}; expected "
            f"{weight.raw.shape}, with two of each four in a row"
        )
    # BEGIN SOLUTION a17.3
    rows, half = len(weight), weight.shape[1] // 2
    columns = mask.flatten().nonzero().reshape(rows, half)
    values = weight.flatten()[columns]
    places = F.pad(columns % 4, (0, -half % 4)).reshape(rows, -(-half // 4), 4)
    units = tensor([1, 4, 16, 64], device=weight.device)
    return values, (places * units).sum(2).to(int8)
    # END SOLUTION a17.3


def unpack_two_of_four(values: Tensor, places: Tensor) -> Tensor:
    """The matrix that was packed, with 0 between: [N, K / 2], int8 [N, *] -> [N, K]

    Errors: ValueError for shapes that do not fit.
    """
    rows, half = values.raw.shape if values.dim() == 2 else (0, 1)
    if half % 2 or places.raw.shape != (rows, -(-half // 4)):
        raise ValueError(
            f"unpack_two_of_four: values are {values.raw.shape} and places "
            f"{places.raw.shape}; expected (N, K / 2) and (N, ceil(K / 8))"
        )
    # BEGIN SOLUTION a17.3
    units = tensor([1, 4, 16, 64], device=values.device)
    each = (places.to(int64).unsqueeze(2) // units % 4).flatten(1)[:, :half]
    fours = tensor(np.arange(half) // 2 * 4, device=values.device)
    return values.new_zeros(rows, 2 * half).scatter(1, each + fours, values)
    # END SOLUTION a17.3
