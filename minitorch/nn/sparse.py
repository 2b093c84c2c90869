"""Layers with few weights: prune a network, and train what is left.

With this file one can drop the smallest weights of every `Linear` of a network
(`prune_linears`), and use the `SparseLinear` layers that it leaves: their work and
memory are those of the weights that exist, and only those learn.

    model = Sequential(Linear(784, 256), ReLU(), Linear(256, 10))   # trained
    sparse = prune_linears(model, 0.9)                              # 10 % are left

Source: Han, Pool, Tran and Dally, "Learning both weights and connections for efficient
neural networks", 2015.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitorch.creation import tensor
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
