"""Sums, extremes, scans and orders: the names of `Tensor`.

With this file one can find what a reduction means: `a.sum(0)` is `sum` in
`minitorch/functions/reduce.py`, and so is `minitorch.sum(a, 0)`.
"""

from __future__ import annotations

from minitorch.functions import matrices, order, random, reduce
from minitorch.functions import softmax as rows


class Reductions:
    """The methods that fold dimensions away, or work along one."""

    __slots__ = ()

    sum = reduce.sum
    mean = reduce.mean
    var = reduce.var
    std = reduce.std
    norm = reduce.norm
    trace = matrices.trace
    logsumexp = reduce.logsumexp
    prod = reduce.prod
    amax = reduce.amax
    amin = reduce.amin
    any = reduce.any
    all = reduce.all
    cumsum = reduce.cumsum
    cumprod = reduce.cumprod

    max = order.max
    min = order.min
    argmax = order.argmax
    argmin = order.argmin
    sort = order.sort
    argsort = order.argsort
    topk = order.topk
    median = order.median
    bincount = order.bincount
    unique = order.unique
    multinomial = random.multinomial
    bernoulli = random.bernoulli

    softmax = rows.softmax
    log_softmax = rows.log_softmax
