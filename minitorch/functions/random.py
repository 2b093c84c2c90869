"""Chance in networks: dropout's zeros, and samples from probabilities.

With this file one can see what a counter-based generator buys: the mask of dropout is
never stored; the backward pass draws the same numbers a second time. And `multinomial`
draws the next token of a text, `bernoulli` says yes or no.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from minitorch.arguments import check_floating
from minitorch.backend import get_backend
from minitorch.dtypes import finfo, float32, float64, promote
from minitorch.function import Context, Function
from minitorch.functions.indexing import MOST_READ
from minitorch.functions.operands import cast
from minitorch.random import Generator, default_generator

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Dropout(Function):
    """x / (1 - p) with probability 1 - p, else 0; linear, so it is its own gradient.

    Source: Srivastava et al., 2014.
    """

    # BEGIN SOLUTION a6.5
    @staticmethod
    def forward(ctx: Context, x: Tensor, p: float, seed: int, offset: int) -> Any:
        ctx.options = p, seed, offset
        return x.backend.dropout(x.raw, p, seed, offset)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        options: Any = ctx.options
        return Dropout.apply(grad, *options), None, None, None

    # END SOLUTION a6.5


def dropout(x: Tensor, p: float = 0.5, generator: Generator | None = None) -> Tensor:
    """Elements zeroed with probability p, the others divided by 1 - p."""
    check_probability(p)
    check_floating("dropout", x)
    if p == 1.0:
        return x * 0.0
    chosen = generator or default_generator
    if chosen.sequence == "pytorch":
        return x * (below(x, 1 - p, chosen).to(x.dtype) / (1 - p))
    return Dropout.apply(x, float(p), *chosen.take(x.numel()))


def below(x: Tensor, p: float, generator: Generator) -> Tensor:
    """Yes with probability p, in the shape of x: from numbers of float64, as PyTorch
    does that for one p, or of float32, where they are ours."""
    shape, strides, on = x.raw.shape, x.raw.strides, get_backend(x.raw.device)
    if generator.sequence == "philox":
        return x.wrap(generator.uniform(on, shape, float32)) < p
    dims = list(range(len(shape)))
    if all(strides):  # the numbers go along the memory, where dims may be transposed
        dims.sort(key=lambda i: -strides[i])
    drawn = generator.uniform(on, tuple([shape[i] for i in dims]), float64)
    return (x.wrap(drawn) < p).permute([dims.index(i) for i in range(len(dims))])


def check_probability(p: float) -> None:
    """Whether dropout can have this p."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: p is {p}; it must be from 0 to 1")


def bernoulli(input: Tensor, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability in `input` [*], else 0, in its dtype, without gradient.

    Errors: ValueError for what is no probability. All of them are read for that.
    """
    p = check_floating("bernoulli", input).detach()
    if p.numel() and not 0.0 <= float(p.min()) <= float(p.max()) <= 1.0:
        raise ValueError("bernoulli: a number is no probability, from 0 to 1")
    wide = cast(p, promote(p.dtype, float32))  # a half's numbers may round to 1
    return (_uniform(wide, generator or default_generator) < wide).to(p.dtype)


def _uniform(x: Tensor, generator: Generator) -> Tensor:
    return x.wrap(generator.uniform(x.backend, x.raw.shape, x.dtype))


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Places drawn with probabilities in proportion to `input`, [C] or [N, C].

    Returns int64 [num_samples] or [N, num_samples], without gradient.

    A race: each place needs a time that is exponential with rate p; who comes first is
    drawn with probability p / sum(p), and so on among the others. That needs no sums.
    With replacement there is a race for each sample, C numbers in memory for each.

    Args:
        replacement: whether a place can be drawn again.

    Errors: ValueError for weights that are negative, infinite or NaN, for a row whose
    weights are all 0, and, without replacement, for more samples than places with a
    weight above 0. All weights are read for that.
    """
    weights = check_floating("multinomial", input).detach()
    chosen = generator or default_generator
    exact = chosen.sequence == "pytorch"
    weights = cast(weights, promote(weights.dtype, float64 if exact else float32))
    shape = weights.raw.shape
    if len(shape) not in (1, 2) or shape[-1] == 0:
        raise ValueError(
            f"multinomial: the weights are {shape}; expected [C] or [N, C]"
        )
    if type(num_samples) is not int or num_samples < 1:
        raise ValueError(
            f"multinomial: num_samples is {num_samples!r}; expected 1 or more"
        )
    if shape[0]:
        _check_weights(weights, 1 if replacement else num_samples)
    if replacement and exact and num_samples > 1:
        return _by_sums(weights, num_samples, chosen)
    if replacement:
        weights = weights.unsqueeze(-2).expand(*shape[:-1], num_samples, shape[-1])
    rates = race(weights, _uniform(weights, chosen))
    return rates.argmax(-1) if replacement else rates.topk(num_samples, -1)[1]


def _by_sums(weights: Tensor, count: int, generator: Generator) -> Tensor:
    """Places, as PyTorch draws several with replacement: where the sums reach them."""
    shape = (*weights.raw.shape[:-1], count)
    drawn = weights.wrap(generator.uniform(weights.backend, shape, float64))
    sums = np.cumsum(weights.cpu().numpy(), -1)
    rows = np.atleast_2d(sums / sums[..., -1:])
    uniform = drawn.cpu().numpy().reshape(len(rows), count)
    places = np.array([np.searchsorted(*row) for row in zip(rows, uniform)], np.int64)
    places = np.minimum(places, rows.shape[-1] - 1).reshape(shape)
    return weights.wrap(weights.backend.from_numpy(places))


def race(weights: Tensor, uniform: Tensor) -> Tensor:
    """The largest is a place drawn with a probability in proportion to its weight.

    That is where the time is up first, from uniform random numbers in [0, 1). Nothing
    is checked, so that no numbers are read.
    """
    # BEGIN SOLUTION a10.5
    times = (-(1.0 - uniform).log()).clamp(min=finfo(weights.dtype).tiny)
    return weights / times
    # END SOLUTION a10.5


def _check_weights(weights: Tensor, least: int) -> None:
    """All finite and not negative, and in each row at least so many above 0."""
    few = weights.raw.size <= MOST_READ
    values: Any = weights.numpy() if few else weights  # of few NumPy is done sooner
    found = int((values > 0).sum(-1).min())
    if not (0 <= float(values.min()) and float(values.max()) < math.inf):
        raise ValueError("multinomial: a weight is negative, infinite or NaN")
    if found < least:
        raise ValueError(
            f"multinomial: a row has {found} weight(s) above 0; expected {least} "
            f"or more"
        )
