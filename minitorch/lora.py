"""Low-rank adapters: train a hundredth of a model's numbers, and leave it what it is.

With this file one can put adapters beside the linear layers of a trained model
(`add_lora_(model, 8)`), train these alone, keep them in a file of their own
(`lora_state_dict`), and add them to the weights at the end (`merge_`).

    y = x W^T + scale * (x A^T) B^T        W [out, in] is fixed, scale = alpha / rank
                                           A [rank, in], B [out, rank] learn

B is 0 at first, so the model begins as what it was. B A has as many numbers as W, but
only rank * (in + out) of them can be chosen, and an optimizer keeps state for no more.

Source: Hu et al., "LoRA: low-rank adaptation of large language models", 2021. Names are
those of PEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import zeros
from minitorch.nn.linear import Linear, default_weight
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.nn.replacing import replace_
from minitorch.tensor import Tensor

M = TypeVar("M", bound=Module)


class LoRALinear(Module):
    """A linear layer that stays as it is, and beside it one of low rank that learns.

    x [*, in] -> y [*, out]; lora_A [rank, in], uniform in +-1 / sqrt(in) at first, and
    lora_B [out, rank], 0 at first. `base` is the layer itself; it is frozen.

    Errors: ValueError for a rank that is not from 1 to min(in, out), and for an alpha
    that is not above 0.
    """

    def __init__(self, base: Linear, rank: int, alpha: float) -> None:
        super().__init__()
        _check_rank("LoRALinear", base, rank, alpha)
        self.rank, self.alpha = rank, alpha
        self.base = base.requires_grad_(False)
        device, dtype = base.weight.device, base.weight.dtype
        self.lora_A = default_weight((rank, base.in_features), device, dtype)
        first = zeros(base.out_features, rank, device=device, dtype=dtype)
        self.lora_B = Parameter(first)
        self.train(base.training)

    @property
    def bias(self) -> Tensor | None:
        """That of the layer."""
        return self.base.bias

    @property
    def weight(self) -> Tensor:
        """W + scale * B A, made anew at each request: for those who ask for it."""
        # BEGIN SOLUTION a14.2
        return self.base.weight + self.lora_B @ self.lora_A * (self.alpha / self.rank)
        # END SOLUTION a14.2

    def forward(self, x: Tensor) -> Tensor:
        # BEGIN SOLUTION a14.2
        narrow = F.linear(x, self.lora_A) * (self.alpha / self.rank)
        return self.base(x) + F.linear(narrow, self.lora_B)
        # END SOLUTION a14.2

    def merged(self) -> Linear:
        """The layer with this weight, as one `nn.Linear`; it is frozen, too.

        Its weight is new: whoever shares the old one, as GPT's embedding does with its
        head, keeps that.
        """
        # BEGIN SOLUTION a14.2
        with no_grad():
            weight = self.weight
        self.base.weight = Parameter(weight, requires_grad=False)
        return self.base
        # END SOLUTION a14.2

    def extra_repr(self) -> str:
        return f"rank={self.rank}, alpha={self.alpha}"


def add_lora_(
    model: M,
    rank: int,
    alpha: float | None = None,
    targets: Sequence[str] = ("c_attn", "c_proj", "c_fc"),
) -> M:
    """Put a `LoRALinear` around linear layers of a model, and freeze all else.

    Args:
        rank: of the adapters.
        alpha: what their product is multiplied by, over rank; None: rank, so by 1.
        targets: which layers: those whose name in the model is one of these, or ends in
            it behind a dot. The default are the layers of a `GPT`'s blocks.

    Returns: the model.

    Raises:
        ValueError: a target is the name of no `nn.Linear`, there are adapters already,
            the model is itself an `nn.Linear`, or the rank does not fit; nothing was
            changed.
    """
    if any(isinstance(module, LoRALinear) for module in model.modules()):
        raise ValueError("add_lora_: the model has adapters already; merge_ them first")
    if isinstance(targets, str):
        targets = (targets,)
    layers = {n: part for n, part in model.named_modules() if type(part) is Linear}
    for target in targets or ("",):
        if not any(_is_called(name, target) for name in layers):
            raise ValueError(
                f"add_lora_: no nn.Linear is called {target!r}; there are "
                f"{', '.join(layers) or 'none'}"
            )

    def chosen(layer: Linear, name: str) -> bool:
        return any(_is_called(name, target) for target in targets)

    scale = rank if alpha is None else alpha
    for name, layer in layers.items():
        if chosen(layer, name):
            _check_rank("add_lora_", layer, rank, scale)
    # BEGIN SOLUTION a14.2
    replace_("add_lora_", model, Linear, lambda x: LoRALinear(x, rank, scale), chosen)
    for name, p in model.named_parameters():
        p.requires_grad_(_is_adapter(name))
    return model
    # END SOLUTION a14.2


def merge_(model: M) -> M:
    """Put `nn.Linear` back in the place of each `LoRALinear`, with the sum of both.

    The model computes what it computed, without the adapters' time. All stays frozen:
    `model.requires_grad_()` lets it learn again.

    Returns: the model.

    Raises:
        ValueError: there are no adapters, or `quantize_` has made bytes of the weights,
            to which nothing can be added.
    """
    found = [part for part in model.modules() if isinstance(part, LoRALinear)]
    if not found:
        raise ValueError("merge_: the model has no adapters; add_lora_ makes them")
    if not all(type(part.base) is Linear for part in found):
        raise ValueError("merge_: weights are bytes; merge_ before quantize_")
    return replace_("merge_", model, LoRALinear, LoRALinear.merged)


def lora_state_dict(model: Module) -> dict[str, Tensor]:
    """The adapters alone, by their names in the model's `state_dict`.

    `model.load_state_dict(adapters, strict=False)` reads them into a model that has
    adapters of the same rank.
    """
    return {n: value for n, value in model.state_dict().items() if _is_adapter(n)}


def _is_called(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _is_adapter(name: str) -> bool:
    return name.rpartition(".")[2] in ("lora_A", "lora_B")


def _check_rank(caller: str, base: Linear, rank: int, alpha: float) -> None:
    sides = base.out_features, base.in_features
    if type(rank) is not int or not 1 <= rank <= min(sides):
        raise ValueError(
            f"{caller}: rank is {rank!r}; expected an int from 1 to {min(sides)}, the "
            f"smaller side of a weight {sides}"
        )
    if not alpha > 0:
        raise ValueError(f"{caller}: alpha is {alpha}; expected a number above 0")
